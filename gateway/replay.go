package gateway

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// errBodyClosed: the attempt that the body was given to is over.
var errBodyClosed = errors.New("request body read after its attempt")

// mostKept is how much of a body is kept for another attempt, bytes: gRPC's clients keep
// as much of a call (its default per-call retry buffer is 256 KiB of messages).
const mostKept = 64 << 10

// replay lends a request's body to one attempt after the other. What they have read is
// kept up to mostKept, if it keeps at all; beyond that there is no other attempt.
type replay struct {
	body io.ReadCloser
	gone atomic.Bool // not all that has been read is kept

	mu   sync.Mutex // held over reads: an attempt waits for what the one before is reading
	kept []byte
	err  error // of body
}

// newReplay keeps nothing unless keeps.
func newReplay(body io.ReadCloser, keeps bool) *replay {
	r := &replay{body: body}
	r.gone.Store(!keeps)
	return r
}

// attempt begins the body anew.
func (r *replay) attempt() *attemptBody { return &attemptBody{replay: r} }

// attemptBody is the body for one attempt. Its Close leaves it open for the next one.
type attemptBody struct {
	*replay
	at     int // of kept; guarded by mu
	read   atomic.Bool
	closed atomic.Bool
}

// Read notes itself before it looks whether it is too late, and taken does the
// opposite: one of them sees the other.
func (b *attemptBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	r := b.replay
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.at < len(r.kept) {
		n := copy(p, r.kept[b.at:])
		b.at += n
		return n, nil
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.body.Read(p)
	r.err = err
	if len(r.kept)+n > mostKept {
		r.gone.Store(true)
	}
	// An attempt that ended while this read was waiting may have found the body
	// whole: it has to stay so.
	if r.gone.Load() && !b.closed.Load() {
		r.kept, b.at = nil, 0
		return n, err
	}
	r.kept = append(r.kept, p[:n]...)
	b.at = len(r.kept)
	return n, err
}

func (b *attemptBody) Close() error {
	b.closed.Store(true)
	return nil
}

// taken ends the attempt's hold on the body and reports whether some of it
// has been read that another attempt would miss.
func (b *attemptBody) taken() bool {
	b.closed.Store(true)
	return b.read.Load() && b.gone.Load()
}

// settled says that there will be no other attempt.
func (b *attemptBody) settled() { b.gone.Store(true) }
