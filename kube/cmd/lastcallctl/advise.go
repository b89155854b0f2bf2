package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/terminal"
	"github.com/lastcall-dev/lastcall/kube/advise"
	"github.com/lastcall-dev/lastcall/kube/model"
	"github.com/lastcall-dev/lastcall/kube/plan"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

const adviseHelp = `Find the smallest timers with which a pod's end loses no more than a share of its requests: the preStop sleep or lastcall's minimum drain and quiet time, and terminationGracePeriodSeconds. The advice comes with its reasons, what a second less loses, its confidence, and a patch.

How long requests take and how late clients still connect is read from what was observed: the result of a rehearsal, terminations under the observer (Prometheus, or JSON lines), or lastcall's own reports. Durations may also be listed in a file, or assumed to be lognormal from --p50, --p99 and --longest. A flag has precedence over what was observed.

With --pods it also simulates a rollout under each way of stopping: how long it takes, how many requests it loses, how much capacity it needs in addition. How long pods take to start, and controllers to react, is read from the result of a rehearsal of a cluster's rollout, or given by --start and --reaction.

Exit code: 0, 1 if no timers suffice or Prometheus does not answer, 2 for wrong flags and input.`

type adviseFlags struct {
	adviseInput
	surge, unavailable string
	start              string
	minimum, reaction  time.Duration
	pods               int
	seed               uint64
}

func adviseCommand() *cobra.Command {
	var f adviseFlags
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Find the smallest timers that lose no requests",
		Long:  adviseHelp,
		Example: "  lastcallctl rehearse --app './web {port}' --request 'GET /report' \\\n    -o json > rehearsal.json\n" +
			"  lastcallctl advise --rehearsal rehearsal.json -f deployment.yaml\n" +
			"  lastcallctl advise --prometheus http://localhost:9090 -f deployment.yaml\n" +
			"  lastcallctl advise --p50 80ms --p99 2s --longest 20s --app finishes\n" +
			"  lastcallctl advise --durations durations.txt -f deployment.yaml --lose 0.001\n" +
			"  lastcallctl advise --p50 80ms --p99 2s --pods 10000 --max-surge 25%",
		Args: filesByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	f.addFlags(flags)
	cli.Group(flags, "Rollout", func(flags *pflag.FlagSet) {
		flags.IntVar(&f.pods, "pods", 0, "simulate a rollout of a Deployment with this many pods (default none)")
		flags.StringVar(&f.surge, "max-surge", "25%", "pods, or a `percentage` of them, that may exist in addition")
		flags.StringVar(&f.unavailable, "max-unavailable", "25%", "pods, or a `percentage` of them, that may be missing")
		flags.StringVar(&f.start, "start", "5s", "`time` from a pod's creation until it is ready: a duration, FROM..TO, or those of several pods with commas between them")
		flags.DurationVar(&f.minimum, "min-ready", 0, "minReadySeconds")
		flags.DurationVar(&f.reaction, "reaction", 200*time.Millisecond, "time from a pod's availability until the controllers create the next one")
		flags.Uint64Var(&f.seed, "seed", 1, "seed of the simulation")
	})
	return cmd
}

func (f *adviseFlags) run(cmd *cobra.Command) error {
	if min(f.minimum, f.reaction) < 0 || max(f.minimum, f.reaction) > 24*time.Hour {
		return cli.UsageError{Err: errors.New("--min-ready and --reaction must be 0s to 24h")}
	}
	start, err := parseStart(f.start)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	surge, unavailable, err := f.bounds()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	o, w, err := f.options(cmd)
	if err != nil {
		return err
	}
	containers := []string{"app"}
	name := "a pod"
	if w != nil {
		name, containers = terminal.Printable(w.String()), nil
		for _, c := range w.Pod.Spec.Containers {
			containers = append(containers, terminal.Printable(c.Name))
		}
	}
	out := bufio.NewWriter(cmd.OutOrStdout()) // keeps the first error for Flush
	d := o.Load.Durations
	_, _ = fmt.Fprintf(out, "%s: requests take %v (median), %v (99 %%), %v (longest)\n%s", name,
		d.Quantile(0.5).Round(time.Millisecond), d.Quantile(0.99).Round(time.Millisecond), d.Longest().Round(time.Millisecond),
		cli.Wrap(terminal.Printable("confidence "+advise.Confidence(o)), columns)+"\n")
	var all []*advise.Advice
	for _, kind := range []advise.Kind{advise.Sleep, advise.Lastcall} {
		a, err := advise.For(kind, o)
		if err != nil {
			_, _ = fmt.Fprintf(out, "\n%s: %v\n", kind, err)
			continue
		}
		all = append(all, a)
		_, _ = fmt.Fprintf(out, "\nWith %s: %s\n", kind, headline(a))
		for _, text := range a.Why(o) {
			_, _ = fmt.Fprintf(out, "  %s\n", text)
		}
		_, _ = fmt.Fprintf(out, "%s", indent(a.Patch(containers)))
	}
	if f.pods > 0 && len(all) > 0 {
		r := model.Rollout{Pods: f.pods, MaxSurge: surge, MaxUnavailable: unavailable, Start: start, MinReady: f.minimum, Reaction: f.reaction, Seed: f.seed, Load: o.Load}
		r.Load.Rate *= float64(f.pods)
		if f.observed != nil {
			f.adoptRollout(cmd.Flags(), f.observed, &r)
		}
		if err := rollouts(out, o, all, r); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(all) == 0 {
		return cli.ErrReported
	}
	return nil
}

// adoptRollout takes what was observed of a rollout, except where a flag sets it.
func (f *adviseFlags) adoptRollout(flags *pflag.FlagSet, e *advise.Evidence, r *model.Rollout) {
	if e.Starts.Count() > 0 && !flags.Changed("start") {
		r.Start = e.Starts
	}
	if e.Reaction > 0 && !flags.Changed("reaction") {
		r.Reaction = max(0, e.Reaction-f.minimum)
	}
}

// parseStart reads --start.
func parseStart(text string) (d model.Durations, err error) {
	wrong := fmt.Errorf("--start %q: must be a positive duration, FROM..TO, or several durations with commas between them", text)
	var all []time.Duration
	from, to, isRange := strings.Cut(text, "..")
	if isRange {
		text = from + "," + to
	}
	for one := range strings.SplitSeq(text, ",") {
		t, err := time.ParseDuration(strings.TrimSpace(one))
		if err != nil || t <= 0 || t > 24*time.Hour {
			return d, wrong
		}
		all = append(all, t)
	}
	switch {
	case !isRange:
		return model.Observed(all), nil
	case len(all) != 2 || all[0] > all[1]:
		return d, wrong
	}
	return model.Uniform(all[0], all[1]), nil
}

func headline(a *advise.Advice) string {
	if a.Kind == advise.Sleep {
		return fmt.Sprintf("sleep %v, terminationGracePeriodSeconds %d", a.Wait, int(a.Grace.Seconds()))
	}
	return fmt.Sprintf("MINIMUM_DRAIN_DURATION %v, LASTCALL_QUIET_TIME %v, terminationGracePeriodSeconds %d", a.Wait, a.QuietTime, int(a.Grace.Seconds()))
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
}

// rollouts prints what a rollout does under each way of stopping.
func rollouts(out io.Writer, o advise.Options, advised []*advise.Advice, r model.Rollout) error {
	type way struct {
		name string
		plan *termination.Termination
	}
	var ways []way
	for _, w := range plan.Ways() {
		if w == plan.Lastcall || w == plan.AsIs && o.Pod == nil {
			continue
		}
		pod := o.Pod
		if pod == nil {
			pod = advise.AnyPod()
		}
		ways = append(ways, way{w.Title(), plan.New("", pod, w, plan.Options{Options: o.Options}).Termination})
	}
	for _, a := range advised {
		ways = append(ways, way{string(a.Kind) + ", as advised", a.Plan})
	}
	_, _ = fmt.Fprintf(out, "\nA rollout of %d pods, maxSurge %d, maxUnavailable %d, %g requests/s:\npods start in %v (median), %v (longest); the controllers react after %v\n%-27s%9s%9s%12s%9s%13s\n",
		r.Pods, r.MaxSurge, r.MaxUnavailable, r.Load.Rate, r.Start.Quantile(0.5).Round(time.Millisecond), r.Start.Longest().Round(time.Millisecond), r.Reaction.Round(time.Millisecond),
		"", "ready", "gone", "lost", "peak", "pod-minutes")
	for _, w := range ways {
		res, err := r.Run(w.plan)
		if err != nil {
			return cli.UsageError{Err: err}
		}
		_, _ = fmt.Fprintf(out, "%-27s%7.1f s%7.1f s%12.0f%9s%13.1f\n", w.name, res.Took.Seconds(), res.Gone.Seconds(), res.Lost(), "+"+strconv.Itoa(res.Peak), res.Extra.Minutes())
	}
	_, _ = fmt.Fprintln(out, "ready: all pods are new; gone: the last old one has ended; peak and pod-minutes: in addition to the replicas")
	return nil
}

// bounds are maxSurge, rounded up, and maxUnavailable, rounded down, as Kubernetes does.
func (f *adviseFlags) bounds() (surge, unavailable int, err error) {
	if f.pods == 0 {
		return 0, 0, nil
	}
	if surge, err = pods("--max-surge", f.surge, f.pods, math.Ceil); err != nil {
		return 0, 0, err
	}
	if unavailable, err = pods("--max-unavailable", f.unavailable, f.pods, math.Floor); err != nil {
		return 0, 0, err
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1 // as Kubernetes does
	}
	return surge, unavailable, model.Rollout{Pods: f.pods, MaxSurge: surge, MaxUnavailable: unavailable}.Validate()
}

func pods(flag, text string, all int, round func(float64) float64) (int, error) {
	number, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || isPercent && n > 100 {
		return 0, fmt.Errorf("%s %q: must be a number of pods, or 0%% to 100%%", flag, text)
	}
	if isPercent {
		n = int(round(float64(n) / 100 * float64(all)))
	}
	return n, nil
}
