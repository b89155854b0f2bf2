package advise

import (
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Why is the reasoning, one sentence each.
func (a *Advice) Why(o Options) []string {
	d := o.Load.Durations
	longest := d.Quantile(1 - o.Lose)
	wait := fmt.Sprintf("wait %v: clients still connect for up to %v after the deletion", a.Wait, o.Load.Propagation)
	if a.Kind == Sleep && o.App != termination.Finishes && o.App != termination.ServesOn {
		wait += fmt.Sprintf(", and the app, which exits at its stop signal, must have answered requests of up to %v by then", round(longest))
	}
	grace := fmt.Sprintf("grace %v: a request that arrives at the end of the %v takes up to %v", a.Grace, o.Load.Propagation, round(longest))
	if a.Kind == Lastcall {
		grace += fmt.Sprintf(", and the last call comes %v before SIGKILL", a.Grace-a.Plan.LastCall)
	}
	out := []string{wait, grace}
	if a.Kind == Lastcall {
		out = append(out, fmt.Sprintf("quiet time %v: it extends the wait, up to a third of the grace period, for clients that learn later than stated; the pod is gone when the last response ends, whatever the grace period", a.QuietTime))
	}
	if a.Wait > 0 {
		out = append(out, fmt.Sprintf("a wait of %v loses %s of the requests meeting a pod's end, a grace period of %v %s", a.Wait-time.Second, percent(a.ShareWait), a.Grace-time.Second, percent(a.ShareGrace)))
	}
	return out
}

// Confidence is how much the advice can be trusted, in words.
func Confidence(o Options) string {
	if o.Evidence != nil {
		return o.Evidence.confidence()
	}
	n := o.Load.Durations.Count()
	if n == 0 {
		return "low: the durations are assumed from percentiles, and the longest one decides; give --longest or --durations"
	}
	text := fmt.Sprintf("%d durations, the longest %v: with 95 %% confidence at most %s of later requests take longer (rule of three)", n, round(o.Load.Durations.Longest()), percent(min(1, 3/float64(n))))
	switch {
	case n < 300:
		return "low: " + text
	case n < 10_000:
		return "medium: " + text
	}
	return "high: " + text
}

// Patch is a patch of a Deployment in kubectl's strategic form.
func (a *Advice) Patch(containers []string) string {
	var b strings.Builder
	b.WriteString("spec:\n  template:\n")
	if a.Kind == Lastcall {
		fmt.Fprintf(&b, "    metadata:\n      labels: {lastcall.dev/inject: \"true\"}\n      annotations:\n        lastcall.dev/pre-stop: replace\n        proxy.istio.io/config: |\n          %s\n", config(a.Wait))
	}
	fmt.Fprintf(&b, "    spec:\n      terminationGracePeriodSeconds: %d\n", int(a.Grace.Seconds()))
	if a.Kind == Sleep && a.Wait > 0 {
		b.WriteString("      containers:\n")
		for _, name := range containers {
			fmt.Fprintf(&b, "      - name: %s\n        lifecycle: {preStop: {sleep: {seconds: %d}}}\n", name, int(a.Wait.Seconds()))
		}
	}
	return b.String()
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", share*100) }

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
