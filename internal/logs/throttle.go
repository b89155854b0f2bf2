package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Throttle is for messages that a peer can cause at any rate: of each message one line per interval is logged. The next
// one has the number of suppressed lines. Its zero value is ready.
type Throttle struct {
	mu   sync.Mutex
	last map[string]*lastLine // by message: as many as the source code has
}

type lastLine struct {
	at   time.Time
	more uint64 // since then
}

// Warn logs msg at level Warn, once in every interval.
func (t *Throttle) Warn(log *slog.Logger, every time.Duration, msg string, attrs ...any) {
	t.Log(log, slog.LevelWarn, every, msg, attrs...)
}

// Log logs msg once in every interval.
func (t *Throttle) Log(log *slog.Logger, level slog.Level, every time.Duration, msg string, attrs ...any) {
	more, ok := t.allow(msg, every)
	if !ok {
		return
	}
	if more > 0 {
		attrs = append(attrs, "suppressed", more)
	}
	log.Log(context.Background(), level, msg, attrs...)
}

// allow reports whether a line is due, and how many were suppressed since the previous one.
func (t *Throttle) allow(key string, every time.Duration) (more uint64, ok bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.last[key]
	switch {
	case s == nil:
		if t.last == nil {
			t.last = make(map[string]*lastLine)
		}
		t.last[key] = &lastLine{at: now}
		return 0, true
	case now.Sub(s.at) < every:
		s.more++
		return 0, false
	}
	more = s.more
	*s = lastLine{at: now}
	return more, true
}
