package drain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/printable"
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

	Restarted Verdict = "restart" // the app failed its probe, so only its container restarts: the hook returned at once
)

// Millis is a duration that reads as whole milliseconds in JSON.
type Millis time.Duration

// MarshalJSON writes whole milliseconds, rounded to nearest.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, m.round().Milliseconds(), 10), nil
}

func (m Millis) round() time.Duration { return time.Duration(m).Round(time.Millisecond) }

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
	Verdict  Verdict   `json:"verdict"`     // the outcome
	Mode     string    `json:"mode"`        // the rule that ends it: "exit-on-zero", "istio-exit-on-zero" or "fixed"
	Trigger  string    `json:"trigger"`     // the signal that began it: "SIGTERM", "hook", …
	Began    time.Time `json:"began"`       // when
	Duration Millis    `json:"duration_ms"` // from the beginning to this report
	Phases   []Span    `json:"phases"`      // in their order, how long each took

	// Deadline is when SIGKILL was due after the beginning, if that was sooner than the grace period.
	Deadline     Millis `json:"deadline_ms,omitempty"`
	DeadlineFrom string `json:"deadline_from,omitempty"` // the source of that: see Termination.Deadline

	// Late is how many connections and requests arrived after the drain began.
	Late uint64 `json:"late"`

	// Raced is how many connections were closed as idle while a request of their client was on its way (RFC 9112, 9.5).
	// Most clients repeat such a request by themselves; the user of one that does not sees an error.
	Raced uint64 `json:"raced,omitempty"`

	// Failed is how many requests got no response, or a part of one, because the app had gone: the drain has not cut
	// them, and they change no verdict.
	Failed uint64 `json:"failed,omitempty"`

	// HeldBy lists the conversations that delayed the exit last, no more than the oldest ten.
	HeldBy []Conversation `json:"held_by,omitempty"`

	// Open lists the conversations that the last call, or the program itself (Cutter), ended.
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
	Phase Phase  `json:"phase"` // "draining", "waiting", "finishing", "last call" or "drained"
	Took  Millis `json:"ms"`    // how long
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

// maxTerminationMessage is how much of a termination message the kubelet reads, in bytes.
const maxTerminationMessage = 4096

// maxLogged is how many cut conversations the log record lists: container runtimes split lines of
// more than 16 KiB into pieces that no JSON reader joins.
const maxLogged = 100

// Publish writes the report as one log record, whose message is its Summary, and, unless file is empty, as JSON to
// file: the container's termination message.
func (r Report) Publish(log *slog.Logger, file string) {
	logged := r
	if n := len(logged.Open) - maxLogged; n > 0 {
		logged.leaveOut(n)
	}
	attrs := []any{
		"verdict", string(r.Verdict),
		"mode", r.Mode,
		"trigger", r.Trigger,
		"duration_ms", time.Duration(r.Duration).Milliseconds(),
		"phases", logValue{r.Phases, inWords(r.Phases, Span.sentence)},
		"late", r.Late,
	}
	if r.DeadlineFrom != "" {
		attrs = append(attrs, "deadline_ms", time.Duration(r.Deadline).Milliseconds(), "deadline_from", r.DeadlineFrom)
	}
	for _, f := range []struct {
		name  string
		isSet bool
		value any
	}{
		{"finish", r.Finish != nil, logValue{r.Finish, r.Finish.sentence()}},
		{"raced", r.Raced > 0, r.Raced},
		{"failed", r.Failed > 0, r.Failed},
		{"held_by", len(r.HeldBy) > 0, logValue{r.HeldBy, inWords(r.HeldBy, Conversation.aged)}},
		{"open", len(r.Open) > 0, logValue{logged.Open, inWords(logged.Open, Conversation.aged)}},
		{"left_out", logged.LeftOut > 0, logged.LeftOut},
		{"assumed", len(r.Assumed) > 0, logValue{r.Assumed, strings.Join(r.Assumed, "; ")}},
		{"faults", len(r.Faults) > 0, logValue{r.Faults, strings.Join(r.Faults, "; ")}},
	} {
		if f.isSet {
			attrs = append(attrs, f.name, f.value)
		}
	}
	log.Info(cmp.Or(r.Summary(), "no SIGTERM followed the hook: serving again"), attrs...)
	if file == "" {
		return
	}
	if err := WriteMessage(file, r); err != nil {
		log.Warn("cannot write the termination message", "file", file, "error", err)
	}
}

// writeTime is how long the exit waits for the termination message to be written: a disk may hang.
const writeTime = 500 * time.Millisecond

// WriteMessage writes a report to a file, no more of it than the kubelet reads. It does not wait for a FIFO without a
// reader, nor for a disk that hangs.
func WriteMessage(file string, r Report) error {
	text := r.message()
	written := make(chan error, 1)
	go func() {
		// O_NONBLOCK: to open a FIFO without a reader is an error (open(2), ENXIO).
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644)
		if err == nil {
			_ = f.SetWriteDeadline(time.Now().Add(writeTime)) // for a FIFO that is full; other files have no deadline
			_, err = f.Write(text)
			err = errors.Join(err, f.Close())
		}
		written <- err
	}()
	late := time.NewTimer(writeTime)
	defer late.Stop()
	select {
	case err := <-written:
		return err
	case <-late.C:
		return fmt.Errorf("write %s: not finished after %v", file, writeTime)
	}
}

// message is the report as JSON, within maxTerminationMessage. Cut conversations are left out first,
// since there may be many, then those that delayed the exit, then faults.
func (r Report) message() []byte {
	for {
		b, err := json.Marshal(r)
		if err != nil {
			return []byte(r.Verdict)
		}
		b = printable.JSON(b)
		if len(b) <= maxTerminationMessage {
			return b
		}
		switch open, held, faults := len(r.Open), len(r.HeldBy), len(r.Faults); {
		case open > 3:
			r.leaveOut(open - open/2)
		case held > 1:
			r.HeldBy = r.HeldBy[:held/2]
		case faults > 1:
			r.Faults = r.Faults[:faults/2]
		case open > 0:
			r.leaveOut(open - open/2)
		case held+faults > 0:
			r.HeldBy, r.Faults = nil, nil
		case len(r.Assumed) > 0:
			r.Assumed = r.Assumed[:len(r.Assumed)/2]
		default:
			return b[:maxTerminationMessage]
		}
	}
}

// leaveOut drops the last n cut conversations.
func (r *Report) leaveOut(n int) { r.Open, r.LeftOut = r.Open[:len(r.Open)-n], r.LeftOut+n }

// ParseMessage parses a termination message. It returns false if the message is not a report: when it
// is empty, an app's own text, other JSON, or a truncated report.
func ParseMessage(text string) (Report, bool) {
	var r Report
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &r) != nil {
		return Report{}, false
	}
	switch r.Verdict {
	case Clean, Assumed, Cut, Ended, Crashed, Quit, Exited, Resumed, Restarted:
		return r, r.Trigger != "" && !r.Began.IsZero()
	}
	return Report{}, false
}

// logValue is a value that JSON logs have as it is, and text logs in words.
type logValue struct {
	value any
	words string
}

func (v logValue) MarshalJSON() ([]byte, error) { return json.Marshal(v.value) }
func (v logValue) MarshalText() ([]byte, error) { return []byte(v.words), nil }

func inWords[T any](all []T, words func(T) string) string {
	var text []string
	for _, one := range all {
		text = append(text, words(one))
	}
	return strings.Join(text, ", ")
}

func (s Span) sentence() string { return fmt.Sprint(s.Phase, " ", s.Took.round()) }

func (c Conversation) aged() string { return fmt.Sprint(c.sentence(), " for ", c.Age.round()) }
