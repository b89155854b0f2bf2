package losses

import (
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

// UnknownProbes is the doubt about refused connections that may have been clients or the kubelet's probes.
const UnknownProbes = "probes"

// Probes are the periods of the kubelet's probes that connect to a pod while it terminates. Their source is an address of
// the node, as is that of clients behind a NodePort, so they look like clients, one by one.
type Probes []time.Duration

// Within is how many connections they make in a time, at most.
func (p Probes) Within(d time.Duration) (n int) {
	for _, period := range p {
		n += int(d/period) + 1
	}
	return n
}

// Lateness is when the last client's connection came: the last from elsewhere, or one from the node's own addresses where
// they are more than the kubelet's probes.
func (p Probes) Lateness(a *observe.Arrivals) time.Duration {
	late := a.Remote
	for i := len(a.Local) - 1; i >= 0 && a.Local[i] > late; i-- {
		if len(a.Local)-i > p.Within(time.Duration(a.Last-a.Local[i]))+len(p) { // their times vary
			late = a.Local[i]
		}
	}
	return time.Duration(late)
}

// Discount leaves out the lost connections that may be probes: those that were refused, or reset before the app accepted
// them.
func (t *Termination) Discount(p Probes) {
	t.endBySIGKILL()
	lost, most := &t.Traffic.Lost, p.Within(time.Duration(t.Traffic.Arrivals.Last))
	refused := min(lost.Refused, most)
	reset := min(t.Traffic.Queued, lost.Reset, most-refused)
	lost.Refused, lost.Reset, t.Probes = lost.Refused-refused, lost.Reset-reset, refused+reset
	if t.Probes > 0 && lost.Total() == 0 {
		t.Doubt(UnknownProbes)
	}
}

// Doubt adds a reason why the termination was not observed, or not all of it.
func (t *Termination) Doubt(reason string) {
	if !slices.Contains(t.Unknown, reason) {
		t.Unknown = append(t.Unknown, reason)
	}
}
