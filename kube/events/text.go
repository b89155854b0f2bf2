package events

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/eventwriter"
)

// The reasons, as kubectl get events shows them.
const (
	ReasonDrained = "Drained"      // every request was answered
	ReasonCut     = "DrainCut"     // the last call had to end requests
	ReasonFixed   = "DrainFixed"   // ended by terminationDrainDuration, with open requests or without
	ReasonCrashed = "DrainCrashed" // the proxy exited before its termination
	ReasonQuit    = "DrainSkipped" // /quitquitquit: no drain
	ReasonExited  = "AppExited"    // the app ended by itself: no drain
	ReasonRestart = "AppRestarted" // the app failed its probe: its container restarts, and the hook did not wait

	// ReasonNotCaptured: the sidecar does not start, since the node's network plugin has not captured the pod (kube/cni).
	ReasonNotCaptured = "NotCaptured"
)

// describe is the Event of a report. ok is false when the report is not of the end of a termination.
func describe(r drain.Report) (kind, reason, message string, ok bool) {
	kind = corev1.EventTypeNormal
	switch r.Verdict {
	case drain.Clean, drain.Assumed:
		reason = ReasonDrained
	case drain.Cut:
		kind, reason = corev1.EventTypeWarning, ReasonCut
	case drain.Ended:
		reason = ReasonFixed
	case drain.Crashed:
		kind, reason = corev1.EventTypeWarning, ReasonCrashed
	case drain.Quit:
		reason = ReasonQuit
	case drain.Exited:
		reason = ReasonExited
	case drain.Restarted:
		reason = ReasonRestart
	default:
		return "", "", "", false
	}
	return kind, reason, terminal.Shorten(r.Summary(), eventwriter.MaxMessage), true
}
