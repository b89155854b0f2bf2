package drain_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// What a scenario expects is written as text; here is how it reads.

func phases(r drain.Report) string {
	var out []string
	for _, p := range r.Phases {
		out = append(out, fmt.Sprint(p.Phase, " ", time.Duration(p.Took)))
	}
	return strings.Join(out, ", ")
}

func calls(calls []dt.Call) string {
	var out []string
	for _, c := range calls {
		with := ""
		if c.Method == dt.CloseIdle || c.Method == dt.LastCall {
			with = fmt.Sprintf("(%v)", c.With)
		}
		out = append(out, fmt.Sprint(c.At, " ", c.Method, with))
	}
	return strings.Join(out, ", ")
}

func endings(endings []dt.Ending) string {
	count := map[dt.Way]int{}
	for _, e := range endings {
		count[e.How]++
	}
	var out []string
	for _, how := range []dt.Way{dt.Answered, dt.Refused, dt.Called, dt.Killed, dt.Died} {
		if count[how] > 0 {
			out = append(out, fmt.Sprint(count[how], " ", how))
		}
	}
	return strings.Join(out, ", ")
}

func names(conversations []drain.Conversation) string {
	var out []string
	for _, c := range conversations {
		out = append(out, fmt.Sprint(cmp.Or(c.Request, c.Protocol), " ", time.Duration(c.Age)))
	}
	return strings.Join(out, ", ")
}

// line is one line of the log, at its moment.
type line struct {
	at  time.Duration
	msg string
}

func (l line) String() string { return fmt.Sprint(l.at, " ", l.msg) }

// logbook is a slog.Handler that keeps the lines.
type logbook struct {
	start time.Time
	mu    sync.Mutex
	lines []line
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logbook) WithGroup(string) slog.Handler            { return b }
func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line{r.Time.Sub(b.start), r.Message})
	return nil
}
