package pipe

import (
	"fmt"
	"io"
	"time"

	"github.com/lastcall-dev/lastcall/internal/logs"
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

// AccessLog writes one line per request, and one per opaque connection. Requests
// never wait for it: when the writer hangs or fails, lines are lost, and counted.
type AccessLog struct {
	out    *logs.Writer
	format LogFormat
}

// maxLogged is how much may wait for the writer, bytes: some 10,000 lines.
const maxLogged = 4 << 20

// NewAccessLog starts an access log on w. Close ends it.
func NewAccessLog(w io.Writer, format LogFormat) *AccessLog {
	return &AccessLog{out: logs.New(w, maxLogged), format: format}
}

// Close writes what is left and returns; when the writer hangs, without it.
func (l *AccessLog) Close() { l.out.Close() }

// Lost is how many lines could not be written, or not fast enough.
func (l *AccessLog) Lost() uint64 { return l.out.Dropped() }

func (l *AccessLog) add(e *logEntry, status int, flags, details string) {
	now := time.Now()
	l.out.Append(func(b []byte) []byte {
		if l.format == LogJSON {
			return e.appendJSON(b, status, flags, details, now)
		}
		return e.appendText(b, status, flags, details, now)
	})
}
