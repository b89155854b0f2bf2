package grpcdrain

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lastcall-dev/lastcall/drain"
	wire "github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

// ErrLastCall is the cause (context.Cause) with which the last call ends the context of a handler.
var ErrLastCall = drain.ErrLastCall

// unavailable is the client's error at the last call.
var unavailable = status.New(codes.Code(wire.Unavailable.Code), wire.Unavailable.Message)

// call is a call in flight.
type call struct {
	method  string
	client  string // address
	began   time.Time
	conn    *conn // nil when an interceptor of the user's has replaced the peer
	counts  bool
	streams bool
	drained <-chan struct{}
	cancel  context.CancelCauseFunc
	wire    grpc.ServerTransportStream
	isEnded bool // by the plane; guarded by Plane.mu
}

// Draining returns a channel that is closed when the server's drain begins. A handler that waits or streams
// for long should watch it, and end at a place of its choice before the last call. ctx is the handler's
// context. If no Plane serves the call, the channel is nil, which blocks forever. lastcall.Draining is the same.
func Draining(ctx context.Context) <-chan struct{} { return drain.Begun(ctx) }

func (p *Plane) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, c, err := p.beginCall(ctx, info.FullMethod, false)
	if err != nil {
		return nil, err
	}
	defer p.endCall(c)
	resp, err := next(ctx, req)
	if p.hasEnded(c) {
		return nil, unavailable.Err()
	}
	return resp, err
}

func (p *Plane) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, c, err := p.beginCall(ss.Context(), info.FullMethod, true)
	if err != nil {
		return err
	}
	defer p.endCall(c)
	err = next(srv, &serverStream{ss, ctx})
	if p.hasEnded(c) {
		return unavailable.Err()
	}
	return err
}

// serverStream has the context of the call.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

// beginCall adds a call. It fails when the call came too late to be served.
func (p *Plane) beginCall(ctx context.Context, method string, streams bool) (context.Context, *call, error) {
	c := &call{
		method: method, began: time.Now(), streams: streams,
		counts: !p.options.Uncounted(method),
		wire:   grpc.ServerTransportStreamFromContext(ctx),
	}
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from, c.client = p.Addr, p.Addr.String()
	}
	ctx, c.cancel = context.WithCancelCause(drain.WithBegun(ctx, func() <-chan struct{} { return c.drained }))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.called || p.closing && streams && !c.counts {
		c.cancel(ErrLastCall)
		return nil, nil, unavailable.Err()
	}
	c.drained, c.conn = p.drained, p.byAddr[from]
	p.calls[c] = struct{}{}
	p.working++
	if c.counts {
		p.arrivals++
		p.mu.Changed()
	}
	return ctx, c, nil
}

func (p *Plane) endCall(c *call) {
	c.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c)
	p.working--
	p.mu.Changed()
}

func (p *Plane) hasEnded(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.isEnded
}

// end ends a call with UNAVAILABLE, in the place of its handler, and reports whether it was still open.
func (p *Plane) end(c *call) bool {
	p.mu.Lock()
	if _, open := p.calls[c]; !open || c.isEnded {
		p.mu.Unlock()
		return false
	}
	c.isEnded = true
	delete(p.calls, c)
	p.mu.Changed()
	p.mu.Unlock()
	c.cancel(ErrLastCall) // first, so that handlers see this cause and not the end of the stream
	// WriteStatus belongs to an internal type of grpc, whose own SendMsg and RecvMsg call it from two goroutines.
	// Without it the client gets UNAVAILABLE when the handler returns, or with the end of the connection:
	// TestLastCall fails then, with a handler that ignores its context.
	if w, ok := c.wire.(interface{ WriteStatus(*status.Status) error }); ok {
		_ = w.WriteStatus(unavailable) // it fails when the client has gone
	}
	return true
}

// Open implements drain.DataPlane.
func (p *Plane) Open(_ context.Context, limit int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []drain.Conversation
	for c := range p.calls {
		if c.counts {
			all = append(all, c.conversation())
		}
	}
	slices.SortFunc(all, func(a, b drain.Conversation) int { return cmp.Compare(b.Age, a.Age) })
	return all[:min(limit, len(all))], nil
}

func (c *call) conversation() drain.Conversation {
	return drain.Conversation{Peer: c.client, Protocol: "grpc", Request: c.method, Age: drain.Millis(time.Since(c.began))}
}
