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
	now := time.Now()
	t.mu.Lock()
	previous, seen := t.last[msg]
	if seen && now.Sub(previous.at) < every {
		previous.more++
		t.mu.Unlock()
		return
	}
	if t.last == nil {
		t.last = make(map[string]*lastLine)
	}
	t.last[msg] = &lastLine{at: now}
	t.mu.Unlock()
	if seen && previous.more > 0 {
		attrs = append(attrs, "suppressed", previous.more)
	}
	log.Log(context.Background(), level, msg, attrs...)
}
