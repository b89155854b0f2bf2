package main

import (
	"bufio"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/advise"
)

const adviseHelp = `Compute the smallest timers with which a pod's end loses no requests: the preStop sleep or lastcall's minimum drain and quiet time, and terminationGracePeriodSeconds. The advice comes with its reasons, its confidence, and a patch.

How long requests take and how late clients still connect is read from what was observed: the result of a rehearsal, terminations under the observer (Prometheus, or JSON lines), or lastcall's own reports. Durations may also be listed in a file, or assumed to be lognormal from --p50, --p99 and --longest. A flag has precedence over what was observed.

Exit code: 0, 1 if no timers suffice or Prometheus does not answer, 2 for wrong flags and input.`

func adviseCommand() *cobra.Command {
	var f adviseInput
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Find the smallest timers that lose no requests",
		Long:  adviseHelp,
		Example: "  lastcallctl rehearse service --app './web {port}' --request 'GET /report' \\\n    -o json > rehearsal.json\n" +
			"  lastcallctl advise --rehearsal rehearsal.json -f deployment.yaml\n" +
			"  lastcallctl advise --prometheus http://localhost:9090 -f deployment.yaml\n" +
			"  lastcallctl advise --p50 80ms --p99 2s --longest 20s --app finishes\n" +
			"  lastcallctl advise --durations durations.txt -f deployment.yaml --lose 0.001",
		Args: filesByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	f.addFlags(flags)
	return cmd
}

func (f *adviseInput) run(cmd *cobra.Command) error {
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
	d := o.Durations
	_, _ = fmt.Fprintf(out, "%s: requests take %v (median), %v (99 %%), %v (longest)\n%s", name,
		d.Quantile(0.5).Round(time.Millisecond), d.Quantile(0.99).Round(time.Millisecond), d.Longest().Round(time.Millisecond),
		cli.Wrap(terminal.Printable("confidence "+advise.Confidence(o)), columns)+"\n")
	found := false
	for _, kind := range []advise.Kind{advise.Sleep, advise.Lastcall} {
		a, err := advise.For(kind, o)
		if err != nil {
			_, _ = fmt.Fprintf(out, "\n%s: %v\n", kind, err)
			continue
		}
		found = true
		_, _ = fmt.Fprintf(out, "\nWith %s: %s\n", kind, headline(a))
		for _, text := range a.Why(o) {
			_, _ = fmt.Fprintf(out, "  %s\n", text)
		}
		_, _ = fmt.Fprintf(out, "%s", indent(a.Patch(containers)))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if !found {
		return cli.ErrReported
	}
	return nil
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
