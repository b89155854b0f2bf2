package service

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// killSpan is how long before and after SIGKILL a failure may be recorded that it caused.
const killSpan = 30 * time.Millisecond

// phase is when a request was lost.
func (t *trial) phase(o traffic.Outcome, why load.Reason) outcome.Phase {
	at := o.Last
	if why == load.Refused {
		at = o.Began
	}
	e := t.end
	term := e.App.Terminated
	switch {
	case o.Address == t.next.Address:
		return outcome.Elsewhere
	case at.Before(t.deleted):
		return outcome.Serving
	case why == load.Refused && at.After(e.Gone()), o.Began.After(e.Gone()):
		return outcome.Gone
	case isKillOf(e.App.Killed, at) || isKillOf(e.Sidecar.Killed, at):
		return outcome.Killed
	case term.IsZero() || at.Before(term):
		return outcome.InHook
	}
	return outcome.Terminating
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
