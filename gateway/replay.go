package gateway

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// errBodyClosed means that the attempt that had the body has ended.
var errBodyClosed = errors.New("request body read after its attempt")

// mostKept is how much of a body is kept for another attempt, bytes. gRPC's clients keep 256 KiB of messages per call by
// default.
const mostKept = 64 << 10

// replay lends a request's body to one attempt after another. It keeps up to mostKept bytes that were read, if it keeps
// any; beyond that there is no other attempt.
type replay struct {
	body io.ReadCloser
	gone atomic.Bool // some of what was read is not kept

	mu   sync.Mutex // held over reads: an attempt waits for a read of the one before it
	kept []byte
	err  error // of body
}

// newReplay makes a replay that keeps nothing unless keeps is set.
func newReplay(body io.ReadCloser, keeps bool) *replay {
	r := &replay{body: body}
	r.gone.Store(!keeps)
	return r
}

// attempt lends the body from its beginning.
func (r *replay) attempt() *attemptBody { return &attemptBody{replay: r} }

// attemptBody is the body for one attempt. Close leaves the body open for the next one.
type attemptBody struct {
	*replay
	at     int // of kept; guarded by mu
	read   atomic.Bool
	closed atomic.Bool
}

// Read sets read before it checks closed, and taken sets closed before it checks read: one of them sees the other.
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
	// If the attempt ended during this read, taken may have reported the body as complete: it must remain so.
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

// taken ends the loan of the body, and reports whether another attempt would miss a part of it.
func (b *attemptBody) taken() bool {
	b.closed.Store(true)
	return b.read.Load() && b.gone.Load()
}

// settled is called when there will be no other attempt.
func (b *attemptBody) settled() { b.gone.Store(true) }
