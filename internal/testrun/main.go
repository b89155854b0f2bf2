// Testrun runs `go test` and ends with one list of what was skipped, which go test itself hides.
//
//	go run ./internal/testrun -race ./...
//
// Its arguments are go test's own. What it prints is what go test prints without -v: a line for each package, and what
// failing tests had to say. After that come the totals, and each skipped test with its reason, also for packages whose
// results are cached.
//
// Exit code: go test's own; 1 when a test was skipped in CI (CI or LASTCALL_CI set), where nothing may be.
package main

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/lastcall-dev/lastcall/internal/peers"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
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
