package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// Protocol is the protocol of a request.
type Protocol string

// The protocols.
const (
	HTTP      Protocol = ""     // HTTP/1.1
	Events    Protocol = "SSE"  // HTTP/1.1, with a response that ends only with its pod
	WebSocket Protocol = "WS"   // held until the peer closes it
	GRPC      Protocol = "GRPC" // a unary or server streaming method
	TCP       Protocol = "TCP"  // bytes, answered by bytes until the peer closes the connection
)

// Request is one kind of request.
type Request struct {
	Protocol Protocol
	Method   string // of HTTP and Events
	Path     string // with the query; of GRPC /SERVICE/METHOD; of TCP empty
	Header   http.Header
	Body     string // of TCP, the bytes; of GRPC, the encoded message; of WebSocket, a text message after the handshake
}

// String is the request's first line without its version.
func (r Request) String() string {
	switch r.Protocol {
	case Events, WebSocket, GRPC:
		return string(r.Protocol) + " " + r.Path
	case TCP:
		return fmt.Sprintf("TCP %.40q", r.Body)
	}
	return r.Method + " " + r.Path
}

// IsEndless reports whether the response ends only with its pod, so that an end in order is the best there is.
func (r Request) IsEndless() bool { return r.Protocol == Events || r.Protocol == WebSocket }

// to is the request for one host, with its body.
func (r Request) to(host string) *http.Request {
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	setDefault := func(name, value string) {
		if header.Get(name) == "" {
			header.Set(name, value)
		}
	}
	setDefault("User-Agent", "rehearse")
	out := &http.Request{Method: r.Method, URL: &url.URL{Opaque: r.Path}, Host: cmp.Or(header.Get("Host"), host),
		Header: header}
	switch r.Protocol {
	case Events:
		setDefault("Accept", "text/event-stream")
	case WebSocket:
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
		header.Set("Sec-WebSocket-Version", "13")
		header.Set("Sec-WebSocket-Key", "bGFzdGNhbGwgcmVoZWFyc2U=") // any 16 bytes (RFC 6455, 4.1)
		return out                                                  // the body is sent as a message
	}
	if r.Body != "" {
		setDefault("Content-Type", "text/plain")
		out.Body, out.ContentLength = io.NopCloser(strings.NewReader(r.Body)), int64(len(r.Body))
	}
	return out
}

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

// tailBytes is how much of a response's end is kept.
const tailBytes = 256

// Outcome is how a request ended.
type Outcome struct {
	Failure Failure
	Detail  string // the error, if any
	Address string // host:port of the pod; empty: none
	Conn    int64  // the connection's number within its client, from 1; 0: none
	Tries   int    // addresses that were tried; of Forward
	Status  int    // 0: no response

	IsByClose bool // the connection's end delimits the response: its client cannot detect that it is short

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
