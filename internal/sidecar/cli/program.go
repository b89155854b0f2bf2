package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
)

// Exit codes.
const (
	codeOK          = 0
	codeFailed      = 1
	codeUsage       = 2   // an error in flags or arguments
	codeInterrupted = 130 // a shell's code for Ctrl-C
)

// ErrReported ends a program with exit code 1 and no message: the command has printed the reason.
var ErrReported error = ExitCode(codeFailed)

// ExitCode ends a program with a code and no message.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Main prepares root, runs it and returns the program's exit code. Its standard error is a *logs.Writer (see Log): a
// reader that stalls does not block the program.
func Main(root *cobra.Command, version string) int {
	stderr := logs.New(os.Stderr, logs.DefaultBound)
	defer stderr.Close()
	root.SetErr(stderr)
	Prepare(root, version)
	cmd, err := root.ExecuteContextC(context.Background())
	var usage UsageError
	var code ExitCode
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &code):
		return int(code)
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

// SignalContext returns a context that ends at Ctrl-C, at SIGTERM, and when the terminal closes, unless nohup ignores
// that signal.
func SignalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	stop := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stop = append(stop, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, stop...)
}

// LogFormatFlag registers --log-format.
func LogFormatFlag(flags *pflag.FlagSet, to *string) {
	ChoiceFlag(flags, to, "log-format", "text", []string{"text", "json"}, "format of lastcall's own log on standard error")
}

// DefaultTerminationLog is Kubernetes' terminationMessagePath, or empty where the platform has not mounted it.
func DefaultTerminationLog() string {
	const path = "/dev/termination-log"
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return ""
}

// Log returns a logger on the standard error that Main has set, and that Writer, for its metrics. Main closes it.
// The format is --log-format's: text or json.
func Log(cmd *cobra.Command, format string, level slog.Leveler) (*slog.Logger, *logs.Writer) {
	to := cmd.ErrOrStderr().(*logs.Writer)
	return logs.NewLogger(format == "json", to, level), to
}
