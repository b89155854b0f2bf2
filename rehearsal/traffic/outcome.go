package traffic

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"
)

// Failure is why a request failed; empty if it succeeded. A status of 400 or more is a failure as well: "503"; so is
// gRPC's: "UNAVAILABLE".
type Failure string

// The failures.
const (
	Refused   Failure = "refused"               // no connection, on each try
	Ended     Failure = "no response"           // the connection was reset or ended before the response
	Truncated Failure = "truncated"             // within the response, and the client can see it
	Short     Failure = "silently short"        // a part of the response that looks complete; only package load can see it
	Late      Failure = "timeout"               // not within the client's Timeout
	NoPods    Failure = "no pods"               // the list of endpoints was empty
	Stopped   Failure = "not counted"           // the client was stopped
	NoClose   Failure = "ended without a close" // of a stream or WebSocket, or with a close frame of an error
)

// IsStatus reports whether it is a response of 500 or more.
func (f Failure) IsStatus() bool { return len(f) == 3 && strings.HasPrefix(string(f), "5") }

// Framing is the way in which a response is delimited.
type Framing string

// The framings.
const (
	ByLength Framing = "length"  // Content-Length
	Chunked  Framing = "chunked" // its last chunk, or a close frame
	ByClose  Framing = "close"   // the connection's end: a client cannot detect that it is short
)

// tailBytes is how much of a response's end is kept.
const tailBytes = 256

// Outcome is how a request ended.
type Outcome struct {
	Failure Failure
	Detail  string // the error, if any
	Address string // host:port of the pod; empty: none
	Conn    int64  // the connection's number within its client, from 1; 0: none
	Tries   int    // addresses that were tried; of Forward
	Local   string // the client's end of the connection; of Forward
	Status  int    // 0: no response
	Framing Framing

	Began, First, Last time.Time // sent; head received, if it was; ended
	Bytes              int64     // of the body
	Tail               []byte    // the body's last 256 bytes at most
}

// fail records a failure.
func (o *Outcome) fail(ctx context.Context, err error, otherwise Failure) {
	o.Detail = err.Error()
	switch {
	case ctx.Err() != nil:
		o.Failure = Stopped
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		o.Failure = Late
	default:
		o.Failure = otherwise
	}
}

// Write counts the bytes of a body, and keeps the last ones.
func (o *Outcome) Write(p []byte) (int, error) {
	o.Bytes += int64(len(p))
	o.Tail = append(o.Tail, p[max(0, len(p)-tailBytes):]...)
	o.Tail = o.Tail[max(0, len(o.Tail)-tailBytes):]
	return len(p), nil
}
