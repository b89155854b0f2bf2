package advise

import (
	"fmt"
	"strings"
	"time"
)

// Why is the reasoning, one sentence each.
func (a *Advice) Why(o Options) []string {
	longest := o.Longest()
	wait := fmt.Sprintf("wait %v: clients still connect for up to %v after the deletion", a.Wait, o.Propagation)
	if a.Kind == Sleep && o.exits() {
		wait += fmt.Sprintf(", and the app, which exits at its stop signal, must have answered requests of up to %v by then", round(longest))
	}
	grace := fmt.Sprintf("grace %v: a request that arrives at the end of the %v takes up to %v", a.Grace, o.Propagation, round(longest))
	if a.Kind == Sleep {
		grace += fmt.Sprintf(", and SIGKILL comes no sooner than %v after that and after the sleep", answered)
	} else {
		grace += fmt.Sprintf(", and the last call comes %v before SIGKILL", a.Grace-a.Plan.LastCall)
	}
	out := []string{wait, grace}
	if a.Kind == Lastcall {
		out = append(out, fmt.Sprintf("quiet time %v: it extends the wait, up to a third of the grace period, for clients that learn later than stated; the pod is gone when the last response ends, whatever the grace period", a.QuietTime))
	}
	return out
}

// Confidence is how much the advice can be trusted, in words.
func Confidence(o Options) string {
	if o.Evidence != nil {
		return o.Evidence.confidence()
	}
	n := o.Durations.Count()
	if n == 0 {
		return "low: the durations are assumed from percentiles, and the longest one decides; give --longest or --durations"
	}
	text := fmt.Sprintf("%d durations, the longest %v: with 95 %% confidence at most %s of later requests take longer (rule of three)", n, round(o.Durations.Longest()), percent(min(1, 3/float64(n))))
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
