package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"
)

// maxTerminationMessage is what the kubelet reads of a termination message,
// bytes.
const maxTerminationMessage = 4096

// mostLogged is how many of what was cut stand in the log's record: container runtimes break lines of more than
// 16 KiB into pieces, which no JSON reader puts together.
const mostLogged = 100

// Tell writes the report as one log record and, unless file is empty, into the
// container's termination message.
func (r Report) Tell(log *slog.Logger, file string) {
	told := r
	if n := len(told.Open) - mostLogged; n > 0 {
		told.leaveOut(n)
	}
	attrs := []any{
		"verdict", string(r.Verdict),
		"mode", r.Mode,
		"trigger", r.Trigger,
		"duration_ms", time.Duration(r.Duration).Milliseconds(),
		"phases", asJSON{r.Phases},
		"late", r.Late,
	}
	if r.Raced > 0 {
		attrs = append(attrs, "raced", r.Raced)
	}
	for _, list := range []struct {
		name  string
		value any
		n     int
	}{
		{"held_by", r.HeldBy, len(r.HeldBy)},
		{"open", told.Open, len(told.Open)},
		{"left_out", told.LeftOut, told.LeftOut},
		{"faults", r.Faults, len(r.Faults)},
	} {
		if list.n > 0 {
			attrs = append(attrs, list.name, asJSON{list.value})
		}
	}
	log.Info("termination report", attrs...)
	if file == "" {
		return
	}
	if err := WriteMessage(file, r.message()); err != nil {
		log.Warn("the termination message could not be written", "file", file, "error", err)
	}
}

// writeTime is how long the end waits for a termination message: a disk may hang.
const writeTime = 500 * time.Millisecond

// WriteMessage writes a report to a file, and does not wait for a FIFO without a
// reader, or for a disk that hangs.
func WriteMessage(file string, text []byte) error {
	written := make(chan error, 1)
	go func() {
		// O_NONBLOCK: a FIFO that nothing reads is an error (open(2), ENXIO).
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644)
		if err == nil {
			_ = f.SetWriteDeadline(time.Now().Add(writeTime)) // of a FIFO that is full; other files have none
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
		return fmt.Errorf("write %s: not done after %v", file, writeTime)
	}
}

// message is the report as JSON. What does not fit is left out: of the list of what was cut first,
// which may be long; of what held the exit, and of the faults, the first stay longest.
func (r Report) message() []byte {
	for {
		b, err := json.Marshal(r)
		if err != nil {
			return []byte(r.Verdict)
		}
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
		default:
			return b[:maxTerminationMessage]
		}
	}
}

// leaveOut drops the last n of what was cut.
func (r *Report) leaveOut(n int) { r.Open, r.LeftOut = r.Open[:len(r.Open)-n], r.LeftOut+n }

// ParseMessage reads a termination message. It is false for what is none of lastcall's: nothing, an
// app's own last words, JSON of something else, a report that was cut off.
func ParseMessage(text string) (Report, bool) {
	var r Report
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &r) != nil {
		return Report{}, false
	}
	switch r.Verdict {
	case Clean, Assumed, Cut, Ended, Crashed, Quit, Exited, Resumed:
		return r, r.Trigger != "" && !r.Began.IsZero()
	}
	return Report{}, false
}

// asJSON reads the same in text logs as in JSON logs.
type asJSON struct{ v any }

func (j asJSON) MarshalJSON() ([]byte, error) { return json.Marshal(j.v) }
func (j asJSON) MarshalText() ([]byte, error) { return json.Marshal(j.v) }
