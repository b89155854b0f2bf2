package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// result is the result of an experiment. Its JSON is for programs.
type result interface {
	WriteTable(w io.Writer, s console.Style) error
	Passed() bool // every row is as expected
}

// Measure runs an experiment until it or the process is ended, and prints its result. run gets the path of this
// program.
func Measure[R result](cmd *cobra.Command, output cli.Format,
	run func(ctx context.Context, self string) (R, error)) error {
	ctx, stop := cli.SignalContext(cmd.Context())
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	r, err := run(ctx, self)
	switch {
	case err != nil:
		return usage(err)
	case output == cli.JSON:
		encoder := json.NewEncoder(printable.JSONWriter(cmd.OutOrStdout()))
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(r)
	default:
		err = r.WriteTable(cmd.OutOrStdout(), console.StyleFor(os.Stdout))
	}
	if err == nil && !r.Passed() {
		err = cli.ErrReported
	}
	return err
}
