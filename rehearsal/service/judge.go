package service

import (
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Reason is why a request was lost. A status of 400 or more is a reason as well: "503".
type Reason string

// The reasons.
const (
	Refused   Reason = "refused"               // no connection
	Dropped   Reason = "no response"           // the connection was reset or closed before the response
	Truncated Reason = "truncated"             // within the response, and the client can see it
	Short     Reason = "silently short"        // a part of the response that looks complete
	Late      Reason = "timeout"               // no complete response within the time
	NoClose   Reason = "ended without a close" // a stream or WebSocket that was not ended in order
)

// Phase is a part of the old pod's end.
type Phase string

// The phases.
const (
	Serving     Phase = "before the deletion"
	InHook      Phase = "while preStop ran"
	Terminating Phase = "after SIGTERM"
	Killed      Phase = "at SIGKILL"
	Gone        Phase = "after the pod's end"
	Elsewhere   Phase = "on the new pod"
)

// killSpan is how long before and after SIGKILL a failure may be recorded that it caused.
const killSpan = 30 * time.Millisecond

// reason judges an outcome; empty: the client got what it should.
func reason(r Request, ref reference, o traffic.Outcome) Reason {
	switch o.Failure {
	case "":
		if !r.IsEndless() && ref.isShort(o) {
			return Short
		}
		return ""
	case traffic.Refused, traffic.NoPods:
		return Refused
	case traffic.Ended, traffic.NotSent:
		return Dropped
	case traffic.Truncated:
		if r.Protocol == traffic.Events {
			return NoClose
		}
		return Truncated
	case traffic.Late:
		return Late
	case traffic.NoClose:
		return NoClose
	}
	return Reason(o.Failure)
}

// isStatus reports whether it is a response of 500 or more.
func (r Reason) isStatus() bool { return len(r) == 3 && strings.HasPrefix(string(r), "5") }

// phase is when a request was lost.
func (t *trial) phase(o traffic.Outcome, why Reason) Phase {
	at := o.Last
	if why == Refused {
		at = o.Began
	}
	e := t.end
	term := e.App.Terminated
	switch {
	case o.Address == t.next.Address:
		return Elsewhere
	case at.Before(t.deleted):
		return Serving
	case why == Refused && at.After(e.Gone()), o.Began.After(e.Gone()):
		return Gone
	case isKillOf(e.App.Killed, at) || isKillOf(e.Sidecar.Killed, at):
		return Killed
	case term.IsZero() || at.Before(term):
		return InHook
	}
	return Terminating
}

// isKillOf reports whether a failure came at or after a SIGKILL.
func isKillOf(killed, at time.Time) bool { return !killed.IsZero() && at.After(killed.Add(-killSpan)) }

// endedBy is how the old pod's app ended.
func endedBy(e strategy.End) string {
	switch {
	case !e.App.Killed.IsZero():
		return "SIGKILL"
	case e.App.Terminated.IsZero():
		return "itself, " + e.AppExit
	}
	return e.AppExit
}
