package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/printable"
)

// NewLogger is a program's own log, as JSON or text. It logs the number of dropped lines once the reader reads again.
func NewLogger(asJSON bool, to *Writer, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(to, options)
	if asJSON {
		handler = slog.NewJSONHandler(printable.JSONWriter(to), options)
	}
	log := slog.New(handler)
	var lines uint64
	to.OnLoss(func(lost uint64, err error) {
		if lines += lost; err == nil { // otherwise this line would be dropped too
			log.Warn("log lines dropped: the reader was too slow", "lines", lines)
			lines = 0
		}
	})
	return log
}

// OpenFile opens a log for appending, without blocking. A FIFO without a reader is opened for reading as well, so that
// its lines wait for a reader, which may open and close it at any time (fifo(7)).
func OpenFile(name string) (*os.File, error) {
	way := os.O_WRONLY
	if info, err := os.Stat(name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		way = os.O_RDWR
	}
	file, err := os.OpenFile(name, way|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0o644)
	switch {
	case err == nil:
		return file, nil
	case way == os.O_RDWR && errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w (a FIFO must be readable as well, so that lines can wait for its reader)", err)
	case errors.Is(err, syscall.ENXIO):
		return nil, fmt.Errorf("%w (it is a socket, a missing device, or a FIFO without a reader)", err)
	}
	return nil, err
}

// Lines is an io.Writer for the output of another program, which arrives in pieces of any size: complete lines reach
// the Writer, so that the Writer's own lines are not mixed with them.
type Lines struct {
	to   *Writer
	mu   sync.Mutex
	part []byte // of an incomplete line
}

// NewLines forwards lines to a Writer.
func NewLines(to *Writer) *Lines { return &Lines{to: to} }

// Write never fails and never blocks. A line above a Writer's limit continues in pieces.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		isWhole := end > 0
		if !isWhole {
			end = len(rest)
		}
		if room := maxLine - len(l.part); end > room {
			end, isWhole = room, false
		}
		l.part, rest = append(l.part, rest[:end]...), rest[end:]
		if !isWhole && len(l.part) < maxLine {
			break
		}
		if !isWhole {
			l.part = append(l.part, '\n')
		}
		_, _ = l.to.Write(l.part)
		l.part = l.part[:0]
	}
	return len(p), nil
}

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
