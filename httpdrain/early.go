package httpdrain

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// requestBody is the body of an HTTP/1.1 request, and records whether the handler has read all of it. net/http would
// read up to 256 KiB of an unread body before it sends the response's head, and wait for a client that pauses.
type requestBody struct {
	io.ReadCloser
	from, to *http.Request // the server's request, and the copy that the handler has
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
	if err == io.EOF {
		b.to.Trailer = b.from.Trailer
		b.ended.Store(true)
	}
	return n, err
}

// isEarly reports whether the body has not been read to its end. A response that begins then is the connection's last,
// because the following bytes may not be a request.
func (x *exchange) isEarly() bool { return x.body != nil && !x.body.ended.Load() }

// leaveBody makes the server send the end of an early response without waiting for the rest of the request. The
// connection is closed in an orderly way: a reset might destroy the response to a client that still sends.
func (x *exchange) leaveBody() {
	if !x.isEarly() || x.hijacked.Load() {
		return
	}
	x.c.unread.Store(true)
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0)) // ends a Read that waits
	_ = x.body.Close()
}
