package pipe

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// LogFormat is how an access log is written.
type LogFormat int

// The formats of Istio's Envoys (meshConfig.accessLogEncoding).
const (
	LogText LogFormat = iota
	LogJSON
)

// ParseLogFormat reads "text" or "json".
func ParseLogFormat(s string) (LogFormat, error) {
	switch s {
	case "text":
		return LogText, nil
	case "json":
		return LogJSON, nil
	}
	return LogText, fmt.Errorf("access log format %q: accepted are text and json", s)
}

// AccessLog writes one line per request, and one per opaque connection. Lines are
// gathered while a write is under way and written together. Requests never wait
// for it: when the writer hangs or fails, lines are lost, and counted.
type AccessLog struct {
	w      io.Writer
	format LogFormat
	lost   atomic.Uint64

	mu    sync.Mutex // guards what follows
	cond  sync.Cond
	buf   []byte
	lines uint64 // in buf
	done  bool

	gone chan struct{}
}

const (
	// maxLogged is how much may wait for the writer, bytes: some 10,000 lines.
	maxLogged = 4 << 20

	// maxSpare is how large a buffer is kept for the next lines, bytes.
	maxSpare = 256 << 10

	// logCloseTime is how long Close waits for a writer that hangs.
	logCloseTime = time.Second
)

// NewAccessLog starts an access log on w. Close ends it.
func NewAccessLog(w io.Writer, format LogFormat) *AccessLog {
	l := &AccessLog{w: w, format: format, gone: make(chan struct{})}
	l.cond.L = &l.mu
	go l.run()
	return l
}

func (l *AccessLog) run() {
	defer close(l.gone)
	var spare []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.buf) == 0 {
			if l.done {
				return
			}
			l.cond.Wait()
		}
		out, lines := l.buf, l.lines
		l.buf, l.lines = spare[:0], 0
		l.mu.Unlock()
		if _, err := l.w.Write(out); err != nil { // a full disk must not stop the traffic
			l.lost.Add(lines)
		}
		if spare = out; cap(spare) > maxSpare {
			spare = nil
		}
		l.mu.Lock()
	}
}

// Close writes what is left and returns; when the writer hangs, without it.
func (l *AccessLog) Close() {
	l.mu.Lock()
	l.done = true
	l.cond.Signal()
	l.mu.Unlock()
	late := time.NewTimer(logCloseTime)
	defer late.Stop()
	select {
	case <-l.gone:
	case <-late.C:
		l.mu.Lock()
		l.lost.Add(l.lines)
		l.buf, l.lines = nil, 0
		l.mu.Unlock()
	}
}

// Lost is how many lines could not be written, or not fast enough.
func (l *AccessLog) Lost() uint64 { return l.lost.Load() }

func (l *AccessLog) add(e *logEntry, status int, flags, details string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > maxLogged || l.done {
		l.lost.Add(1)
		return
	}
	if l.format == LogJSON {
		l.buf = e.appendJSON(l.buf, status, flags, details, now)
	} else {
		l.buf = e.appendText(l.buf, status, flags, details, now)
	}
	l.lines++
	l.cond.Signal()
}
