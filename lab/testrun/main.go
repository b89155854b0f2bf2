// Testrun runs `go test` and ends with one list of what was skipped, which go test itself hides.
//
//	go run ./internal/testrun -race ./...
//	go run ./internal/testrun flaky -race -times 20 -load 20 ./...
//
// The second finds tests that fail by chance, as flaky.go says. Else its arguments are go test's own. What it prints is what go test prints without -v: a line for each package, and what
// failing tests had to say. After that come the totals, and each skipped test with its reason, also for packages whose
// results are cached.
//
// Exit code: go test's own; 1 when a test was skipped in CI (CI or LASTCALL_CI set), where nothing may be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) > 0 && args[0] == "flaky" {
		return runFlaky(args[1:])
	}
	command := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	command.Stderr = os.Stderr
	events, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun: start go test:", err)
		return 1
	}
	results, readErr := read(events, os.Stdout)
	// Waited for in any case: go test's verdict counts, whatever was understood of its output.
	err = command.Wait()
	results.print(os.Stdout)
	switch {
	case readErr != nil:
		fmt.Fprintln(os.Stderr, "testrun: read the output of go test:", readErr)
		return 1
	case err != nil:
		return max(command.ProcessState.ExitCode(), 1)
	case len(results.skipped) > 0 && peers.InCI():
		fmt.Fprintln(os.Stderr, "testrun: in CI no test may be skipped")
		return 1
	}
	return 0
}

func runFlaky(args []string) int {
	o, err := parseFlaky(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "testrun flaky:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	stable, err := flaky(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun flaky:", err)
	}
	if err != nil || !stable {
		return 1
	}
	return 0
}
