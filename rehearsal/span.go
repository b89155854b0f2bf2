package rehearsal

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// clockError is a tolerance for the clock.
const clockError = 20 * time.Millisecond

// span is the range of times in which an event is expected, from the scale-down or the pod's SIGTERM.
type span struct{ from, to time.Duration }

// exactly is a span of one moment.
func exactly(t time.Duration) span { return span{t, t} }

// between is the span from one moment to another.
func between(from, to time.Duration) span { return span{from, to} }

// atMost is the span with no moment after d.
func (s span) atMost(d time.Duration) span { return span{min(s.from, d), min(s.to, d)} }

// atLeast is the span of the later of two events.
func (s span) atLeast(o span) span { return span{max(s.from, o.from), max(s.to, o.to)} }

// union is the smallest span that contains both.
func (s span) union(o span) span { return span{min(s.from, o.from), max(s.to, o.to)} }

// holds reports whether an event at d is in the span, or no later than slack after it.
func (s span) holds(d, slack time.Duration) bool { return d >= s.from-clockError && d <= s.to+slack }

func (s span) String() string {
	if s.to-s.from < 10*time.Millisecond {
		return "after " + terminal.Measured(s.from)
	}
	return fmt.Sprintf("after %s to %s", terminal.Measured(s.from), terminal.Measured(s.to))
}
