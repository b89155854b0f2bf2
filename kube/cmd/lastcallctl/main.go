// Lastcallctl is for people and clusters: it rehearses how pods end
// (lastcallctl rehearse), and is the gateway and the app that rehearsals are played
// with.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/logs"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

// Exit codes.
const (
	codeOK      = 0
	codeFailed  = 1 // something did not come out as stated, or could not be done
	codeUsage   = 2 // flags or arguments
	codeStopped = 130
)

// errTold ends with codeFailed when everything has been said already.
var errTold = errors.New("told already")

// usage is an error in flags or arguments.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

func main() { os.Exit(run()) }

func run() int {
	stderr := logs.New(os.Stderr, logs.DefaultBound)
	defer stderr.Close()
	cmd := command()
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(context.Background())
	var u usage
	var c cli.UsageError
	switch {
	case err == nil:
		return codeOK
	case errors.Is(err, errTold):
		return codeFailed
	case errors.As(err, &u), errors.As(err, &c):
		fmt.Fprintf(stderr, "lastcallctl: %v\nSee lastcallctl --help.\n", err)
		return codeUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "lastcallctl: stopped; what it had started is gone")
		return codeStopped
	}
	fmt.Fprintf(stderr, "lastcallctl: %v\n", err)
	return codeFailed
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "lastcallctl",
		Short: "Rehearse how pods stop; inject, lint, and serve in a cluster",
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(rehearseCommand(), gatewayCommand(), httpbinCommand(), injectCommand(), lintCommand(), webhookCommand(), versionCommand())
	cli.Prepare(root, buildVersion())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), buildVersion())
			return err
		},
	}
}

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
