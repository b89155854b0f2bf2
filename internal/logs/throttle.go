package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Throttle is for what a peer can cause as often as it likes: of each message one
// line in an interval is logged. The next one says how many were suppressed in
// between. Its zero value is ready.
type Throttle struct {
	mu   sync.Mutex
	said map[string]*said // by message: as many as the source code has
}

type said struct {
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

// allow says whether it is time for a line, and how many were suppressed since the
// one before.
func (t *Throttle) allow(key string, every time.Duration) (more uint64, ok bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.said[key]
	switch {
	case s == nil:
		if t.said == nil {
			t.said = make(map[string]*said)
		}
		t.said[key] = &said{at: now}
		return 0, true
	case now.Sub(s.at) < every:
		s.more++
		return 0, false
	}
	more = s.more
	*s = said{at: now}
	return more, true
}
