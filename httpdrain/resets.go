package httpdrain

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// maxResets is how many streams a connection may have before it is judged by those that end at once without their
// response (rapid reset, CVE-2023-44487): more than half are too many. prematureTime is how old a stream is that may be
// reset. Both are Envoy's.
const (
	maxResets     = 500
	prematureTime = time.Second
)

var errResets = errors.New("most streams of the connection are reset as soon as they begin")

// resets judges a connection. Each reset costs the handler a request, although no more streams than allowed are ever
// open.
type resets struct {
	now func() time.Time

	mu                sync.Mutex
	begun             map[uint32]time.Time // of streams whose response has not ended
	last              uint32               // the latest stream
	judged, premature int                  // both halved now and then: what was long ago counts for less
}

func newResets(now func() time.Time) *resets {
	return &resets{now: now, begun: map[uint32]time.Time{}}
}

// fromClient takes a frame of the client in; an error is too much.
func (g *resets) fromClient(head [http2FrameHead]byte) error {
	kind, id := http2.FrameType(head[3]), streamOf(head)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case kind == http2.FrameHeaders && id > g.last:
		g.last = id
		g.begun[id] = g.now()
		if g.judged++; g.judged > 4*maxResets {
			g.judged, g.premature = g.judged/2, g.premature/2
		}
	case kind == http2.FrameRSTStream:
		return g.reset(id)
	}
	return nil
}

// fromServer takes a frame of the server in. code is a RST_STREAM's: a client can have the server reset a stream by
// a violation of the protocol (CVE-2025-8671).
func (g *resets) fromServer(head [http2FrameHead]byte, code http2.ErrCode) error {
	kind, id := http2.FrameType(head[3]), streamOf(head)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch kind {
	case http2.FrameHeaders, http2.FrameData:
		if http2.Flags(head[4])&http2.FlagDataEndStream != 0 { // END_STREAM is 1 in both
			delete(g.begun, id)
		}
	case http2.FrameRSTStream:
		switch code {
		case http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed, http2.ErrCodeFrameSize:
			return g.reset(id)
		}
		delete(g.begun, id)
	}
	return nil
}

// reset is called with mu held.
func (g *resets) reset(id uint32) error {
	began, open := g.begun[id]
	delete(g.begun, id)
	if !open || g.now().Sub(began) >= prematureTime {
		return nil
	}
	if g.premature++; g.judged >= maxResets && 2*g.premature > g.judged {
		return errResets
	}
	return nil
}

func streamOf(head [http2FrameHead]byte) uint32 {
	return binary.BigEndian.Uint32(head[5:]) & 0x7fffffff
}

// latest is the client's latest stream.
func (g *resets) latest() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// http2FrameHead is how long a frame's head is (RFC 9113, 4.1).
const http2FrameHead = 9

// frameFollower finds the frames in a stream of bytes.
type frameFollower struct {
	skip  int // bytes of a preface, before the first frame
	head  [http2FrameHead]byte
	have  int     // bytes of head that have come
	left  int     // bytes of the payload to come
	begin [4]byte // of the payload
	got   int     // bytes of begin
}

// between says that no frame has begun.
func (f *frameFollower) between() bool { return f.have == 0 }

// next takes in bytes up to the end of a frame and returns the rest; whole: it is the frame's end.
func (f *frameFollower) next(b []byte) (rest []byte, whole bool) {
	n := min(f.skip, len(b))
	f.skip, b = f.skip-n, b[n:]
	if f.have < len(f.head) {
		n := copy(f.head[f.have:], b)
		f.have, b = f.have+n, b[n:]
		if f.have < len(f.head) {
			return nil, false
		}
		f.left, f.got = int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2]), 0
	}
	n = min(f.left, len(b))
	f.got += copy(f.begin[f.got:], b[:n])
	f.left, b = f.left-n, b[n:]
	if f.left > 0 {
		return nil, false
	}
	f.have = 0
	return b, true
}

// code is that of a RST_STREAM that is whole.
func (f *frameFollower) code() http2.ErrCode {
	return http2.ErrCode(binary.BigEndian.Uint32(f.begin[:]))
}
