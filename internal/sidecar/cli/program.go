package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
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

// ExitCode ends a program with a code and no message.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Main prepares root, runs it and returns the program's exit code. Its standard error is a *logs.Writer (see Log): a
// reader that stalls does not block the program. onError is called with the error, if there is one, before it is
// printed.
func Main(root *cobra.Command, version string, onError ...func(error)) int {
	stderr := logs.New(os.Stderr, logs.DefaultBound)
	defer stderr.Close()
	root.SetErr(stderr)
	Prepare(root, version)
	cmd, err := root.ExecuteContextC(context.Background())
	if err != nil {
		for _, f := range onError {
			f(err)
		}
	}
	var usage UsageError
	var code ExitCode
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, ErrReported):
		return codeFailed
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\nSee %s --help.\n", root.Name(), err, cmd.CommandPath())
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

// SignalContext returns a context that ends at Ctrl-C, at SIGTERM, and when the terminal closes, unless nohup ignores
// that signal.
func SignalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	stop := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stop = append(stop, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, stop...)
}
