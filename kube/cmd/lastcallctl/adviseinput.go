package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/advise"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// adviseInput is what the advice follows from.
type adviseInput struct {
	file, durations, app                 string
	rehearsal, prometheus, span, reports string
	workload                             string
	p50, p99, longest, propagation       time.Duration
	lose                                 float64
}

func (f *adviseInput) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "filename", "f", "", "manifest `file` with one workload, or - (default a pod with one container)")
	flags.StringVar(&f.durations, "durations", "", "`file` with one duration per line, such as 250ms, or seconds; or -")
	flags.DurationVar(&f.p50, "p50", 0, "median of the durations")
	flags.DurationVar(&f.p99, "p99", 0, "99th percentile of the durations")
	flags.DurationVar(&f.longest, "longest", 0, "longest duration; with --p50 and --p99 (default 3 times --p99)")
	flags.Float64Var(&f.lose, "lose", 0, "`share`, 0 to 1, of the longest requests that may be cut")
	flags.DurationVar(&f.propagation, "propagation", 4*time.Second, "how long clients still connect after a pod's deletion")
	cli.ChoiceFlag(flags, &f.app, "app", "exits", reactionNames(), "what the app does at its stop signal")
	cli.Group(flags, "Observed", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.rehearsal, "rehearsal", "", "`file` with the result of lastcallctl rehearse service … -o json, or -")
		flags.StringVar(&f.prometheus, "prometheus", "", "`URL` of Prometheus with the observers' metrics")
		flags.StringVar(&f.span, "range", "7d", "with --prometheus, the `time` before now: hours or days such as 12h or 7d, at most 366d")
		flags.StringVar(&f.reports, "reports", "", "`file` with JSON lines of observers, or lastcall's own reports; or -")
		flags.StringVar(&f.workload, "workload", "", "with --prometheus or --reports, `[NAMESPACE/]KIND/NAME` of the workload (default the one of -f)")
	})
}

// options are the advice's, and the workload of -f; nil without -f.
func (f *adviseInput) options(cmd *cobra.Command) (advise.Options, *manifest.Workload, error) {
	var o advise.Options
	if err := f.check(); err != nil {
		return o, nil, cli.UsageError{Err: err}
	}
	var w *manifest.Workload
	if f.file != "" {
		var err error
		if w, err = f.readWorkload(cmd); err != nil {
			return o, nil, cli.UsageError{Err: err}
		}
		o.Pod = w.Pod
	}
	e, err := f.evidence(cmd, w)
	if err != nil {
		return o, nil, err
	}
	var d advise.Durations
	switch {
	case f.durations != "":
		d, err = readInput(cmd, "--durations", f.durations, advise.ReadDurations)
	case f.p50 != 0 || f.p99 != 0:
		if f.longest == 0 {
			f.longest = 3 * f.p99
		}
		d, err = advise.Lognormal(f.p50, f.p99, f.longest)
	default:
		d, o.Evidence = e.Tails, e
	}
	if err == nil && d.Longest() > 20*time.Minute {
		err = fmt.Errorf("the longest duration is %v: must be 20m or less", d.Longest())
	}
	if err != nil {
		return o, nil, cli.UsageError{Err: err}
	}
	if e != nil {
		f.adopt(cmd.Flags(), e)
	}
	if f.propagation < 0 || f.propagation > 10*time.Minute {
		return o, nil, cli.UsageError{Err: fmt.Errorf("--propagation %v: must be 0s to 10m", f.propagation)}
	}
	o.Lose, o.Durations, o.Propagation = f.lose, d, f.propagation
	o.App, o.Istio = course.Reaction(f.app), inject.Native
	return o, w, nil
}

func (f *adviseInput) check() error {
	given := func(all ...bool) (n int) {
		for _, one := range all {
			if one {
				n++
			}
		}
		return n
	}
	observed, durations := given(f.rehearsal != "", f.prometheus != "", f.reports != ""), given(f.durations != "", f.p50 != 0 || f.p99 != 0)
	switch {
	case !(f.lose >= 0 && f.lose < 1): // NaN is neither
		return fmt.Errorf("--lose %g: must be 0 or more, and less than 1", f.lose)
	case observed > 1:
		return errors.New("use only one of --rehearsal, --prometheus and --reports")
	case durations > 1:
		return errors.New("give either --durations, or --p50 and --p99: how long requests take")
	case observed+durations == 0:
		return errors.New("missing how long requests take: give --rehearsal, --prometheus, --reports, --durations, or --p50 and --p99")
	case f.longest != 0 && f.p50 == 0 && f.p99 == 0:
		return errors.New("--longest: must be used with --p50 and --p99")
	}
	return nil
}

// adopt takes what was observed, except where a flag sets it.
func (f *adviseInput) adopt(flags *pflag.FlagSet, e *advise.Evidence) {
	if e.Propagation > 0 && !flags.Changed("propagation") {
		f.propagation = e.Propagation
	}
	if e.App != "" && !flags.Changed("app") {
		f.app = string(e.App)
	}
}

// evidence is what was observed; nil if no flag names a source.
func (f *adviseInput) evidence(cmd *cobra.Command, w *manifest.Workload) (*advise.Evidence, error) {
	namespace, workload := "", f.workload
	if i := strings.Index(workload, "/"); i >= 0 && strings.Count(workload, "/") == 2 {
		namespace, workload = workload[:i], workload[i+1:]
	} else if workload == "" && w != nil {
		namespace, workload = w.Namespace, strings.ToLower(w.Kind)+"/"+w.Name
	}
	if strings.Count(workload, "/") != 1 && workload != "" {
		return nil, cli.UsageError{Err: fmt.Errorf("--workload %q: must be [NAMESPACE/]KIND/NAME, such as shop/deployment/web", f.workload)}
	}
	var e *advise.Evidence
	var err error
	switch {
	case f.rehearsal != "":
		e, err = readInput(cmd, "--rehearsal", f.rehearsal, advise.ReadRehearsal)
	case f.reports != "":
		e, err = readInput(cmd, "--reports", f.reports, func(in io.Reader) (*advise.Evidence, error) {
			return advise.ReadReports(in, namespace, workload)
		})
	case f.prometheus != "":
		if workload == "" {
			return nil, cli.UsageError{Err: errors.New("--prometheus: missing --workload or -f: whose terminations")}
		}
		return f.query(cmd, namespace, workload)
	}
	if err != nil {
		err = cli.UsageError{Err: err}
	}
	return e, err
}

func (f *adviseInput) query(cmd *cobra.Command, namespace, workload string) (*advise.Evidence, error) {
	base, span, err := parsePrometheus(f.prometheus, f.span)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	ctx, stop := cli.SignalContext(cmd.Context())
	defer stop()
	e, err := advise.Query(ctx, http.DefaultClient, base, span, namespace, workload)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return e, err
}

// parsePrometheus reads --prometheus and --range.
func parsePrometheus(address, text string) (*url.URL, time.Duration, error) {
	span, err := parseSpan(text)
	if err != nil {
		return nil, 0, err
	}
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, 0, fmt.Errorf("--prometheus %q: must be a URL such as http://localhost:9090", address)
	}
	return base, span, nil
}

// readInput reads a flag's file, or standard input for -.
func readInput[T any](cmd *cobra.Command, flag, name string, read func(io.Reader) (T, error)) (value T, err error) {
	in := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return value, fmt.Errorf("%s must be a file or -: %w", flag, err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	if value, err = read(in); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return value, err
}

// readWorkload reads the only one of the manifest.
func (f *adviseInput) readWorkload(cmd *cobra.Command) (*manifest.Workload, error) {
	files, err := manifest.Read([]string{f.file}, cmd.InOrStdin())
	if err != nil {
		return nil, fmt.Errorf("-f must be a file or -: %w", err)
	}
	all, err := manifest.Serving(files)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("%s has %d workloads that serve: must have one, whose requests the durations are", f.file, len(all))
	}
	return all[0], nil
}
