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

const rehearseShort = "Show what a client gets under each way of stopping a pod"

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

// LoadFlags are those of a load.
type LoadFlags struct {
	load.Options
	requests []string
	rate     string
}

// Register adds the flags.
func (f *LoadFlags) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.requests, "request", nil, "`request` that clients send, "+load.RequestSyntax+
		"; METHOD may be SSE, WS, TCP or GRPC; may be repeated")
	flags.StringVar(&f.Descriptors, "descriptors", "", "`file` with the descriptors of gRPC services, "+
		"as protoc --include_imports --descriptor_set_out writes it (default the server's reflection)")
	flags.StringVar(&f.rate, "load", "",
		"requests a second, as `200/s` (default as many as keep two in flight, at most 20/s)")
	flags.DurationVar(&f.Timeout, "timeout", load.DefaultTimeout, "how long a request may take")
}

// Parse sets the Options. Its error has all errors of the flags.
func (f *LoadFlags) Parse() error {
	var errs []error
	for _, text := range f.requests {
		r, err := load.ParseRequest(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%w", err))
		}
		f.Requests = append(f.Requests, r)
	}
	if rate, err := parseLoad(f.rate); err != nil {
		errs = append(errs, err)
	} else {
		f.Rate = rate
	}
	return errors.Join(errs...)
}

// parseLoad parses "200/s" or "200"; an empty text is 0.
func parseLoad(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	if err != nil || !(n > 0 && n <= 1e6) { // NaN is neither
		return 0, fmt.Errorf("--load is %q: must be requests a second, as 200/s, and at most 1000000/s", text)
	}
	return n, nil
}

// usage makes an error about an option a usage error.
func usage(err error) error {
	var option load.OptionError
	if errors.As(err, &option) {
		return cli.UsageError{Err: err}
	}
	return err
}
