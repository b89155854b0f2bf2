// Package command has the commands of a rehearsal. Two programs mount them: lastcallctl, and rehearse, which compiles
// in seconds because it imports nothing from Kubernetes.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

// result is the result of a rehearsal. Its JSON is for programs.
type result interface {
	WriteTable(w io.Writer, s console.Style) error
	Passed() bool // every row is as expected
}

// measure runs a rehearsal until it or the process is ended, and prints its result.
func measure(cmd *cobra.Command, output cli.Format, run func(ctx context.Context) (result, error)) error {
	ctx, stop := cli.SignalContext(cmd.Context())
	defer stop()
	r, err := run(ctx)
	switch {
	case errors.As(err, new(load.OptionError)):
		return cli.UsageError{Err: err}
	case err != nil:
		return err
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

// loadFlags adds the flags of a load.
func loadFlags(flags *pflag.FlagSet, o *load.Options) {
	flags.Func("request", "`request` that clients send, "+load.RequestSyntax+
		"; METHOD may be SSE, WS, TCP or GRPC; may be repeated", func(text string) error {
		r, err := load.ParseRequest(text)
		o.Requests = append(o.Requests, r)
		return err
	})
	flags.StringVar(&o.Descriptors, "descriptors", "", "`file` with the descriptors of gRPC services, "+
		"as protoc --include_imports --descriptor_set_out writes it (default the server's reflection)")
	flags.Func("load", "requests a second, as `200/s` (default as many as keep two in flight, at most 20/s)",
		func(text string) (err error) {
			o.Rate, err = strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
			if err != nil || !(o.Rate > 0 && o.Rate <= load.MaxRate) { // NaN is neither
				return fmt.Errorf("must be requests a second, as 200/s, and at most %g/s", load.MaxRate)
			}
			return nil
		})
	flags.DurationVar(&o.Timeout, "timeout", load.DefaultTimeout, "how long a request may take")
}
