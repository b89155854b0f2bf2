package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/logs"
)

// Exit codes.
const (
	codeOK          = 0
	codeFailed      = 1
	codeUsage       = 2   // an error in flags or arguments
	codeInterrupted = 130 // what a shell reports for Ctrl-C
)

// ErrReported ends a program with exit code 1 and no message: the command has printed the reason.
var ErrReported = errors.New("already reported")

// Main prepares root, runs it and returns the program's exit code. Its standard error is a *logs.Writer (see Log): a
// reader that stalls does not block the program.
func Main(root *cobra.Command, version string) int {
	stderr := logs.New(os.Stderr, logs.DefaultBound)
	defer stderr.Close()
	root.SetErr(stderr)
	Prepare(root, version)
	err := root.ExecuteContext(context.Background())
	var usage UsageError
	switch {
	case err == nil:
		return codeOK
	case errors.Is(err, ErrReported):
		return codeFailed
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\nSee %[1]s --help.\n", root.Name(), err)
		return codeUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "%s: interrupted\n", root.Name())
		return codeInterrupted
	}
	fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	return codeFailed
}

// Version is the one that the build set, or else the module's in the build information.
func Version(set string) string {
	if set != "" {
		return set
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// VersionCommand prints the version.
func VersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}
