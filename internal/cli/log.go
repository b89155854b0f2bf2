package cli

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/logs"
)

// Log returns a logger on the standard error that Main has set, and that Writer, for its metrics. Main closes it.
// The format is --log-format's: text or json.
func Log(cmd *cobra.Command, format string, level slog.Leveler) (*slog.Logger, *logs.Writer, error) {
	to := cmd.ErrOrStderr().(*logs.Writer)
	log, err := logs.NewLogger(format, to, level)
	if err != nil {
		return nil, nil, UsageError{fmt.Errorf("--log-format %q: must be text or json", format)}
	}
	return log, to, nil
}
