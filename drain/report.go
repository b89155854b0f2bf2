package drain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verdict is the outcome of a termination.
type Verdict string

const (
	Clean   Verdict = "clean"   // every inbound conversation ended by itself
	Assumed Verdict = "assumed" // no request was seen in flight, under the assumptions in Report.Assumed
	Cut     Verdict = "cut"     // the last call had to end conversations
	Ended   Verdict = "fixed"   // ended by terminationDrainDuration, whatever was open
	Crashed Verdict = "crashed" // the data plane ended by itself
	Quit    Verdict = "quit"    // /quitquitquit: ended at once, without a drain
	Exited  Verdict = "exited"  // the app exited by itself: its responses were delivered
	Resumed Verdict = "resumed" // no SIGTERM followed the hook: serving again

	// Restarted: the app failed its probe, so only its container restarts. The hook returned at once.
	Restarted Verdict = "restart"
)

// Millis is a duration that reads as whole milliseconds in JSON.
type Millis time.Duration

// MarshalJSON writes whole milliseconds, rounded to nearest.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(m).Round(time.Millisecond).Milliseconds(), 10), nil
}

// UnmarshalJSON reads whole milliseconds.
func (m *Millis) UnmarshalJSON(b []byte) error {
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*m = Millis(time.Duration(n) * time.Millisecond)
	return nil
}

// Report describes how a termination went, for the log, the termination message and the metrics.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	Mode     string    `json:"mode"`
	Trigger  string    `json:"trigger"` // the signal that began it: "SIGTERM", "hook", …
	Began    time.Time `json:"began"`
	Duration Millis    `json:"duration_ms"`
	Phases   []Span    `json:"phases"`

	// Deadline is when SIGKILL was due after the beginning, if that was sooner than the grace period; DeadlineFrom is the
	// source of that: see Termination.Deadline.
	Deadline     Millis `json:"deadline_ms,omitempty"`
	DeadlineFrom string `json:"deadline_from,omitempty"`

	// Late is how many connections and requests arrived after the drain began.
	Late uint64 `json:"late"`

	// Raced is how many connections were closed as idle while a request of their client was on its way (RFC 9112, 9.5).
	// Most clients repeat such a request by themselves; the user of one that does not sees an error.
	Raced uint64 `json:"raced,omitempty"`

	// HeldBy lists the conversations that delayed the exit last, no more than the oldest ten.
	HeldBy []Conversation `json:"held_by,omitempty"`

	// Open lists the conversations that the last call ended.
	Open []Conversation `json:"open,omitempty"`

	// LeftOut is how many of them did not fit into the termination message.
	LeftOut int `json:"left_out,omitempty"`

	// Finish is set if the app got its SIGTERM while opaque connections were open.
	Finish *Finish `json:"finish,omitempty"`

	// Assumed lists the assumptions that the data plane has made.
	Assumed []string `json:"assumed,omitempty"`

	// Faults lists the failures that did not stop the drain.
	Faults []string `json:"faults,omitempty"`
}

// Span is how long a phase took.
type Span struct {
	Phase Phase  `json:"phase"`
	Took  Millis `json:"ms"`
}

// Phase is the state of a termination.
type Phase int

// The phases in their order. In Finishing, the app has its SIGTERM and ends its opaque connections. In Drained, a drain
// that a hook has begun waits for SIGTERM, or is cancelled.
const (
	Serving Phase = iota
	Draining
	Waiting
	Finishing
	LastCall
	Drained
	Done
)

var phaseNames = []string{"serving", "draining", "waiting", "finishing", "last call", "drained", "done"}

func (p Phase) String() string { return nameOf(p, "Phase", phaseNames) }

// nameOf returns the name of a value of an enumeration, or its number if it has none.
func nameOf[T ~int](value T, kind string, names []string) string {
	if value < 0 || int(value) >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, int(value))
	}
	return names[value]
}

// MarshalText writes the phase's name.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a phase's name.
func (p *Phase) UnmarshalText(text []byte) error {
	i := slices.Index(phaseNames, string(text))
	if i < 0 {
		return fmt.Errorf("phase is %q: must be one of %s", text, strings.Join(phaseNames, ", "))
	}
	*p = Phase(i)
	return nil
}
