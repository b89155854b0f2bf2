package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

// Load is what clients send.
type Load struct {
	Requests []load.Request
	Rate     float64 // requests a second; 0: chosen by load.Load
	Timeout  time.Duration

	Descriptors string // load.Load.Descriptors
}

// loadFlags are those of a Load.
type loadFlags struct {
	requests []string
	load     string
	timeout  time.Duration

	descriptors string
}

func (f *loadFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.requests, "request", nil, "`request` that clients send, "+load.RequestSyntax+"; METHOD may be SSE, WS, TCP or GRPC; may be repeated")
	flags.StringVar(&f.descriptors, "descriptors", "", "`file` with the descriptors of gRPC services, as protoc --include_imports --descriptor_set_out writes it (default the server's reflection)")
	flags.StringVar(&f.load, "load", "", "requests a second, as `200/s` (default as many as keep two in flight, at most 20/s)")
	flags.DurationVar(&f.timeout, "timeout", load.DefaultTimeout, "how long a request may take")
}

// parse returns all errors of the flags.
func (f *loadFlags) parse() (l Load, err error) {
	var errs []error
	for _, text := range f.requests {
		r, err := load.ParseRequest(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%w", err))
		}
		l.Requests = append(l.Requests, r)
	}
	if l.Rate, err = parseLoad(f.load); err != nil {
		errs = append(errs, err)
	}
	l.Timeout, l.Descriptors = f.timeout, f.descriptors
	return l, errors.Join(errs...)
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
