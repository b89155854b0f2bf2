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

// usage is an error of whoever called.
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
	switch {
	case err == nil:
		return codeOK
	case errors.Is(err, errTold):
		return codeFailed
	case errors.As(err, &u):
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
		Use:           "lastcallctl",
		Short:         "Rehearse how pods end, and what stands around them",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage{err} })
	root.AddCommand(rehearseCommand(), gatewayCommand(), httpbinCommand(), injectCommand(), lintCommand(), webhookCommand(), versionCommand())
	return root
}

// noArgs is cobra.NoArgs with our exit code, and it knows the commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return usage{fmt.Errorf("there is no command %q", args[0])}
	}
	return usage{fmt.Errorf("%s takes no argument, got %q", cmd.CommandPath(), args[0])}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
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
