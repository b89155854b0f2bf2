package accesslog

import (
	"io"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
)

// Format is the encoding of a line.
type Format string

// The encodings of Istio's Envoys (meshConfig.accessLogEncoding).
const (
	Text Format = "text"
	JSON Format = "json"
)

// Log writes lines without blocking its callers: if the writer hangs or fails, lines are dropped and counted.
type Log struct {
	out    *logs.Writer
	format Format
}

// maxBuffered bounds the lines that wait for the writer, in bytes: about 10,000 lines.
const maxBuffered = 4 << 20

// New starts a log on w. The caller must call Close.
func New(w io.Writer, format Format) *Log { return &Log{out: logs.New(w, maxBuffered), format: format} }

// Close writes the buffered lines. It gives up on a writer that hangs.
func (l *Log) Close() { l.out.Close() }

// Lost is the number of lines that were dropped.
func (l *Log) Lost() uint64 { return l.out.Dropped() }

// Write adds the line of a request that ended now.
func (l *Log) Write(e *Entry) {
	now := time.Now()
	l.out.Append(func(b []byte) []byte {
		if l.format == JSON {
			return e.AppendJSON(b, now)
		}
		return e.AppendText(b, now)
	})
}
