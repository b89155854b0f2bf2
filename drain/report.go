package drain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verdict is how a termination came out.
type Verdict string

const (
	Clean   Verdict = "clean"   // every inbound conversation ended by itself
	Assumed Verdict = "assumed" // no request was seen in flight; what that rests on is in Report.Assumed
	Cut     Verdict = "cut"     // the last call had to end conversations
	Ended   Verdict = "fixed"   // ended by terminationDrainDuration, whatever was open
	Crashed Verdict = "crashed" // the data plane ended by itself before it was told to
	Quit    Verdict = "quit"    // /quitquitquit: left at once, without a drain
	Exited  Verdict = "exited"  // the app ended by itself: what it had answered was delivered
	Resumed Verdict = "resumed" // no termination followed the hook: serving again
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

// Report is what a termination was: the last word of the process, for its log,
// the termination message and the metrics.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	Mode     string    `json:"mode"`
	Trigger  string    `json:"trigger"` // what began it: "SIGTERM", "hook", …
	Began    time.Time `json:"began"`
	Duration Millis    `json:"duration_ms"`
	Phases   []Span    `json:"phases"`

	// Late is how many connections and requests came after the drain began.
	Late uint64 `json:"late"`

	// Raced is how many connections were closed as idle in the moment in which
	// their client asked again (RFC 9112, 9.5). Clients repeat such a request, most
	// by themselves; of one that does not, it is the error that its user saw.
	Raced uint64 `json:"raced,omitempty"`

	// HeldBy is what kept the data plane waiting, seen last before it was free:
	// the oldest ten at most.
	HeldBy []Conversation `json:"held_by,omitempty"`

	// Open is what the last call ended.
	Open []Conversation `json:"open,omitempty"`

	// LeftOut is how many of them a termination message had no room for.
	LeftOut int `json:"left_out,omitempty"`

	// Assumed is what the data plane took for true without being able to know.
	Assumed []string `json:"assumed,omitempty"`

	// Faults are what went wrong on the way without stopping the drain.
	Faults []string `json:"faults,omitempty"`
}

// Span is how long a phase took.
type Span struct {
	Phase Phase  `json:"phase"`
	Took  Millis `json:"ms"`
}

// Phase is where a termination stands.
type Phase int

// The phases in the order in which they come. Drained is where a hook's drain
// waits for the SIGTERM that follows, or is taken back.
const (
	Serving Phase = iota
	Draining
	Waiting
	LastCall
	Drained
	Done
)

var phaseNames = [...]string{"serving", "draining", "waiting", "last call", "drained", "done"}

func (p Phase) String() string {
	if p < 0 || int(p) >= len(phaseNames) {
		return "Phase(" + strconv.Itoa(int(p)) + ")"
	}
	return phaseNames[p]
}

// MarshalText writes the phase's name.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a phase's name.
func (p *Phase) UnmarshalText(text []byte) error {
	i := slices.Index(phaseNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("phase %q: accepted are %s", text, strings.Join(phaseNames[:], ", "))
	}
	*p = Phase(i)
	return nil
}
