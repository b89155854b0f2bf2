package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
)

// LogFormatFlag registers --log-format.
func LogFormatFlag(flags *pflag.FlagSet, to *string) {
	ChoiceFlag(flags, to, "log-format", "text", []string{"text", "json"}, "format of lastcall's own log on standard error")
}

// OpenAccessLog opens the file of --access-log: "-" is stdout; "off" and "" are none, and give nil.
func OpenAccessLog(name string, stdout io.Writer) (io.Writer, error) {
	switch name {
	case "off", "":
		return nil, nil
	case "-":
		return stdout, nil
	}
	file, err := logs.OpenFile(name)
	if err != nil {
		return nil, fmt.Errorf("open --access-log, which must be a file, - or off: %w", err)
	}
	return file, nil
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
