package httpdrain

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/spread"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

// handlersTime is how long handlers may continue after the last call has cancelled their contexts.
const handlersTime = 500 * time.Millisecond

const shuttingDown = drain.BodyLastCall + "\n"

// recover, deferred, logs a panic of the program's own function. The last call runs such functions outside of
// net/http's goroutines, where a panic would end the process.
func (p *Plane) recover() {
	fault := recover()
	if fault == nil || fault == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
		return
	}
	logf := log.Printf
	if p.server.ErrorLog != nil {
		logf = p.server.ErrorLog.Printf
	}
	logf("httpdrain: panic at the last call: %v\n%s", fault, debug.Stack())
}

// unavailable is the default of Options.Answer.
func unavailable(w http.ResponseWriter, r *http.Request) {
	if isGRPC(r) { // in trailers, because the flush of the answer sends the header without END_STREAM
		w.Header().Set("Content-Type", "application/grpc")
		for _, field := range grpc.Unavailable.Trailers() {
			w.Header().Set(http.TrailerPrefix+http.CanonicalHeaderKey(field[0]), field[1])
		}
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(shuttingDown)))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, shuttingDown)
}

// LastCall implements drain.DataPlane.
func (p *Plane) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	stopErr := p.StopAccepting(ctx)
	began := time.Now()
	p.beginClosing()
	p.called.Store(true)
	p.mu.Lock()
	p.shutHTTP2()
	var busy []*conn
	for c := range p.conns {
		if c.isBusy() {
			busy = append(busy, c)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(busy, func(a, b *conn) int { return a.began.Compare(b.began) })
	var ended []drain.Conversation
	over := spread.Over(len(busy), window/2, window)
	p.retries.Store(int64(spread.Retries(len(busy), over)))
	spread.Each(ctx, began, over, busy, func(c *conn) { ended = append(ended, p.cut(c)...) })
	return ended, stopErr
}

// cut ends one connection and returns the conversations that it has cut.
func (p *Plane) cut(c *conn) []drain.Conversation {
	p.mu.Lock()
	if _, ok := p.conns[c]; !ok || !c.isBusy() {
		p.mu.Unlock()
		return nil // it has ended by itself
	}
	var requests []*exchange
	for x := range c.requests {
		requests = append(requests, x)
	}
	var ended []drain.Conversation
	switch {
	case len(requests) > 0:
	case c.hijacked != nil: // its handler has returned
		requests = append(requests, c.hijacked)
	default:
		ended = c.conversations()
		if ended[0].Ending = drain.EndingFIN; c.delimited.Load() {
			ended[0].Ending = drain.EndingTruncated
		}
	}
	isHTTP2, cancel, outer := c.h2 != nil, c.cancel, c.outer
	p.mu.Unlock()

	slices.SortFunc(requests, func(a, b *exchange) int { return a.began.Compare(b.began) })
	closes := !isHTTP2 // HTTP/2's close with their last stream, or with Close
	var claimed []*exchange
	for _, x := range requests {
		was := x.conversation()
		if x.claim() {
			claimed = append(claimed, x)
			if was.Ending = drain.EndingReply; was.Protocol == "grpc" {
				was.Ending = drain.EndingGRPC
			}
			ended = append(ended, was)
			continue
		}
		was.Ending = x.protocolEnding()
		switch {
		case was.Ending != "" && x.hijacked.Load(): // the client may respond for handlersTime: see Close
			return append(ended, was)
		case was.Ending != "":
		case x.hijacked.Load():
			was.Ending = drain.EndingFIN
		default:
			was.Ending = x.breakOff()
			x.mu.Lock()
			closes = closes && !x.ending.Proper && x.ending.Last == nil // it ends in its body when the handler returns
			x.mu.Unlock()
		}
		if was.Ending != "" {
			ended = append(ended, was)
		}
	}
	c.tear()
	cancel(ErrLastCall) // before the client can close, so that the handler sees this cause
	for _, x := range claimed {
		x.answer(p.o.Answer)
	}
	if closes {
		p.lingering.Go(func() { _ = outer.Close() })
	}
	return ended
}

// Close implements drain.DataPlane. After a last call it does not wait for handlers that ignore their contexts.
func (p *Plane) Close(ctx context.Context) error {
	err := errors.Join(p.StopAccepting(ctx), p.CloseIdle(ctx, 0))
	if p.called.Load() {
		ending, cancel := context.WithTimeout(ctx, handlersTime)
		_ = p.wait(ending)
		cancel()
		p.closeAll()
	} else {
		err = errors.Join(err, p.wait(ctx))
	}
	if err != nil {
		return err
	}
	p.end()
	done := make(chan struct{})
	go func() { p.lingering.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeAll ends every connection, busy or not.
func (p *Plane) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.tear()
		outer := c.outer
		p.lingering.Go(func() { _ = outer.Close() })
	}
}

// wait returns when no connection and no handler is left.
func (p *Plane) wait(ctx context.Context) error {
	return p.mu.Await(ctx, func() bool { return len(p.conns) == 0 && p.working == 0 })
}

// end makes Serve return.
func (p *Plane) end() {
	p.mu.Lock()
	p.listeners.End()
	p.stopSweeper()
	carrier := p.http2
	p.mu.Unlock()
	if carrier != nil {
		_ = carrier.Close()
	}
	_ = p.server.Close()
}

// Kill implements drain.DataPlane.
func (p *Plane) Kill() {
	p.killed.Store(true)
	p.mu.Lock()
	var all []*conn
	for c := range p.conns {
		all = append(all, c)
		c.tear()
		c.cancel(ErrLastCall)
	}
	p.mu.Unlock()
	p.end()
	for _, c := range all {
		_ = c.Close()
		_ = c.Conn.Close() // lingering ones, too
	}
}

// endsWithConnection reports whether only the end of the connection ends the body of the response: HTTP/1.0 without a
// length (RFC 9112, 6.3). x.mu is held.
func (x *exchange) endsWithConnection(status int) bool {
	switch {
	case x.c.h2 != nil, x.hasLength(), x.r.Method == http.MethodHead, status == http.StatusNoContent,
		status == http.StatusNotModified:
		return false
	}
	return !x.r.ProtoAtLeast(1, 1) || strings.EqualFold(x.own.Get("Transfer-Encoding"), "identity") // as net/http reads it
}

// tear makes the end of the connection a reset, if its response is half of a body that a FIN would complete. It must be
// called before anything that makes the handler, the server or TLS close the connection.
func (c *conn) tear() {
	if c.delimited.Load() {
		c.torn.Store(true)
	}
}

// reset closes the connection of a truncated response. Bytes that the client has not received are lost.
func (c *conn) reset() error {
	if lingers, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		_ = lingers.SetLinger(0)
	}
	return c.Conn.Close()
}

// Open implements drain.DataPlane.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []drain.Conversation
	for c := range p.conns {
		if c.isBusy() {
			all = append(all, c.conversations()...)
		}
	}
	slices.SortFunc(all, func(a, b drain.Conversation) int { return cmp.Compare(b.Age, a.Age) })
	return all[:min(most, len(all))], nil
}

// conversations returns those of a busy connection; p.mu is held.
func (c *conn) conversations() []drain.Conversation {
	var all []drain.Conversation
	for x := range c.requests {
		all = append(all, x.conversation())
	}
	switch {
	case len(all) > 0:
	case c.hijacked != nil:
		all = append(all, c.hijacked.conversation())
	default: // its head is incomplete, or the end of its response being written
		all = append(all, drain.Conversation{Peer: c.RemoteAddr().String(), Protocol: "http/1.1",
			Age: drain.Millis(time.Since(c.since))})
	}
	return all
}
