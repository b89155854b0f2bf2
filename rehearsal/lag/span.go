package lag

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// early is a tolerance for the clock.
const early = 20 * time.Millisecond

// Span is the range of times in which an event is expected, from the scale-down or the pod's SIGTERM.
type Span struct{ From, To time.Duration }

// At is a span of one moment.
func At(t time.Duration) Span { return Span{t, t} }

// Between is the span from one moment to another.
func Between(from, to time.Duration) Span { return Span{from, to} }

// AtMost is the span with no moment after d.
func (s Span) AtMost(d time.Duration) Span { return Span{min(s.From, d), min(s.To, d)} }

// AtLeast is the span of the later of two events.
func (s Span) AtLeast(o Span) Span { return Span{max(s.From, o.From), max(s.To, o.To)} }

// Union is the smallest span that contains both.
func (s Span) Union(o Span) Span { return Span{min(s.From, o.From), max(s.To, o.To)} }

// Holds reports whether an event at d is in the span, or no later than slack after it.
func (s Span) Holds(d, slack time.Duration) bool { return d >= s.From-early && d <= s.To+slack }

func (s Span) String() string {
	if s.To-s.From < 10*time.Millisecond {
		return "after " + terminal.Measured(s.From)
	}
	return fmt.Sprintf("after %s to %s", terminal.Measured(s.From), terminal.Measured(s.To))
}
