package httpdrain

import (
	"net"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// streams are those of a connection. It is judged by the streams that are reset at once, by the client or for a fault
// of the client.
type streams struct {
	now func() time.Time

	mu    sync.Mutex
	begun map[uint32]time.Time // of streams whose response has not ended
	last  uint32               // the latest stream
	ended bool                 // the client's further frames are not served
	rate  http2.ResetRate
}

func newStreams(now func() time.Time) *streams {
	return &streams{now: now, begun: map[uint32]time.Time{}}
}

// fromClient takes a frame of the client. An error ends the connection.
func (g *streams) fromClient(at http2.FrameHeader) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended:
		return net.ErrClosed
	case (at.Type == http2.Headers || at.Type == http2.Continuation) && at.Has(http2.FlagEndHeaders) && at.Stream > g.last:
		g.last = at.Stream
		g.begun[at.Stream] = g.now()
		g.rate.StreamBegins(http2.DefaultMaxResets)
	case at.Type == http2.RSTStream:
		return g.reset(at.Stream)
	}
	return nil
}

// fromServer takes a frame of the server. code is that of a RST_STREAM frame: a client can make the server reset a
// stream by a protocol violation (CVE-2025-8671).
func (g *streams) fromServer(at http2.FrameHeader, code http2.ErrCode) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch at.Type {
	case http2.Headers, http2.Data:
		if at.Has(http2.FlagEndStream) {
			delete(g.begun, at.Stream)
		}
	case http2.RSTStream:
		switch code {
		case http2.ProtocolError, http2.FlowControlError, http2.StreamClosed, http2.FrameSizeError:
			return g.reset(at.Stream)
		}
		delete(g.begun, at.Stream)
	}
	return nil
}

// reset is called with mu held.
func (g *streams) reset(id uint32) error {
	began, open := g.begun[id]
	delete(g.begun, id)
	if !open {
		return nil
	}
	return g.rate.StreamReset(g.now().Sub(began), http2.DefaultMaxResets)
}

// open returns how many streams have no complete response.
func (g *streams) open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.begun)
}

// endIfIdle makes the latest stream the last one, unless a stream is open.
func (g *streams) endIfIdle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = g.ended || len(g.begun) == 0
	return g.ended
}

// latest is the client's latest stream.
func (g *streams) latest() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}
