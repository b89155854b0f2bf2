package httpdrain

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// requestBody is the body of an HTTP/1.1 request, and records whether the handler has read all of it. net/http reads up
// to 256 KiB of an unread body before it sends the response's head, so that the connection can be kept, and waits for a
// client that pauses. In a drain no connection is kept, and nothing is worth that wait.
type requestBody struct {
	io.ReadCloser
	from, to *http.Request // the server's request, and the copy that the handler has
	begun    atomic.Bool   // a part has been read
	ended    atomic.Bool
}

// followBody wraps the body of the request. HTTP/2 responses do not wait for request bodies.
func (x *exchange) followBody() {
	if x.r.ProtoMajor != 1 || x.r.Body == nil || x.r.Body == http.NoBody {
		return
	}
	x.body = &requestBody{ReadCloser: x.r.Body, from: x.r}
	x.r = x.r.WithContext(x.r.Context()) // the server uses its own request's body
	x.r.Body, x.body.to = x.body, x.r
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.begun.Store(true)
	}
	if err == io.EOF {
		b.to.Trailer = b.from.Trailer
		b.ended.Store(true)
	}
	return n, err
}

// isRefused reports whether the handler has stopped reading because the body is too large, as after an error of
// http.MaxBytesReader. That closes the connection without waiting for the rest, but only net/http's own ResponseWriter
// has the method by which it does.
func (b *requestBody) isRefused(status int) bool {
	return b != nil && status == http.StatusRequestEntityTooLarge && b.begun.Load() && !b.ended.Load()
}

// leaveBody is called when the handler has returned.
func (x *exchange) leaveBody() {
	p := x.c.p
	if x.body != nil { // net/http removes the temporary files of its own request
		x.body.from.MultipartForm = x.r.MultipartForm
	}
	p.mu.Lock()
	x.c.leaves = x.body != nil && !x.body.ended.Load() && !x.hijacked.Load()
	isEnd := x.c.answerEarly()
	p.mu.Unlock()
	if isEnd { // before net/http resets the deadline: a proxy may still be reading the body in another goroutine
		_ = x.body.Close()
	}
}

// answerEarly makes the server send a response without waiting for the rest of the request, if no connection is kept.
// The connection is then closed in an orderly way: a reset might destroy the response to a client that still sends.
// p.mu is held.
func (c *conn) answerEarly() bool {
	isEnd := c.leaves && c.p.draining.Load()
	if isEnd {
		c.unread.Store(true)
		_ = c.SetReadDeadline(time.Unix(1, 0)) // ends a Read that waits
	}
	return isEnd
}
