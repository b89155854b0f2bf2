package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// maxReport bounds the list of connections in the report.
const maxReport = 1000

// stopTimeout is how long a last call waits for Envoy to close its listeners.
const stopTimeout = time.Second

// Open lists the busy connections, as far as the kernel shows: those whose client sent last come before those that are
// receiving a response. The age is the time since the client sent bytes.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sockets, err := p.sockets(connectionStates)
	if err != nil {
		return nil, err
	}
	sockets = slices.DeleteFunc(sockets, func(s sockdiag.Socket) bool {
		ended := s.HasClosed()
		return !p.layout.counts(s.Local) || ended && !undelivered(s)
	})
	slices.SortStableFunc(sockets, func(a, b sockdiag.Socket) int {
		return cmp.Or(cmp.Compare(p.layout.waits(a), p.layout.waits(b)), cmp.Compare(b.LastReceived, a.LastReceived))
	})
	most = min(most, p.last.Busy)
	var out []drain.Conversation
	for _, s := range sockets[:min(most, len(sockets))] {
		protocol := "http"
		if p.layout.evidence[s.Local.Port()] == openIsBusy {
			protocol = "tcp"
		}
		out = append(out, drain.Conversation{Peer: s.Remote.String(), Protocol: protocol, Age: drain.Millis(s.LastReceived)})
	}
	if len(out) == 0 && most > 0 {
		// Only Envoy sees them: QUIC, a unix socket.
		out = append(out, drain.Conversation{Peer: "unknown", Protocol: "unknown"})
	}
	return out, nil
}

// Whether the client of a connection waits for a response or for a part of it, as far as the kernel shows.
const (
	waits = iota
	probablyWaits
	isAnswered
)

func (l *layout) waits(s sockdiag.Socket) int {
	neverAnswered := s.Acked <= 1 && s.Received > 0 // our SYN counts as one
	switch {
	case l.evidence[s.Local.Port()] == openIsBusy, s.WriteQueue > 0, s.ReadQueue > 0:
		return waits
	case s.LastReceived < s.LastSent || neverAnswered:
		return probablyWaits
	}
	return isAnswered
}

// LastCall stops accepting and returns the open connections. Envoy cannot end single connections: they end when it
// exits.
func (p *Plane) LastCall(ctx context.Context, _ time.Duration) ([]drain.Conversation, error) {
	open, err := p.Open(ctx, maxReport)
	ending := "closed"
	if p.o.WatchOnly {
		ending = drain.LeftToApp
	}
	for i := range open {
		open[i].Ending = ending
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return open, errors.Join(err, p.StopAccepting(ctx))
}

// exitTime is how long an Envoy may take to exit after SIGTERM. It needs 7 ms (measured).
const exitTime = 2 * time.Second

// Close ends Envoy so that it flushes its access log and its stats, and returns when the kernel has delivered what
// Envoy had written. An Envoy that does not exit is killed. An Envoy that was not started by lastcall keeps running.
func (p *Plane) Close(ctx context.Context) error {
	p.end()
	c := p.running()
	if c == nil {
		return nil
	}
	if err := p.send(ctx, c); err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	return nil
}

// send makes Envoy exit. SIGTERM and /quitquitquit have the same effect; SIGTERM needs neither a round trip nor a
// working admin API.
func (p *Plane) send(ctx context.Context, c *process.Child) error {
	if len(c.Group()) == 0 {
		return nil
	}
	_ = c.SignalGroup(syscall.SIGTERM)
	if !(ends(ctx, c, exitTime) && groupEnds(ctx, c)) && ctx.Err() == nil {
		p.log.Warn("Envoy still running after SIGTERM; killing it", "after", exitTime)
		_ = c.SignalGroup(syscall.SIGKILL)
		select {
		case <-c.Done():
		case <-ctx.Done():
		}
	}
	if c.HasExited() {
		return nil
	}
	return fmt.Errorf("end envoy: %w", ctx.Err())
}

// ends waits for the end of a process, at most for a time, and reports whether it has ended.
func ends(ctx context.Context, c *process.Child, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	return c.HasExited()
}

// groupEnds waits for the processes that a script has started and left behind, and reports whether they have ended.
func groupEnds(ctx context.Context, c *process.Child) bool {
	ctx, cancel := context.WithTimeout(ctx, exitTime)
	defer cancel()
	<-c.GroupDone(ctx)
	return len(c.Group()) == 0
}

// deliveryTime is how long an end waits for slow readers. It is part of the margin before the kubelet's SIGKILL.
const deliveryTime = 500 * time.Millisecond

// awaitDelivery waits until the kernel has delivered to the clients what an exited Envoy had written: a pod's network
// ends with its last process, and undelivered bytes with it.
func (p *Plane) awaitDelivery() {
	ctx, cancel := context.WithTimeout(p.life, deliveryTime)
	defer cancel()
	owing := 0
	if poll.Until(ctx, 5*time.Millisecond, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if owing = 0; p.layout == nil { // it has not served
			return true
		}
		sockets, err := p.sockets(sockdiag.Of(sockdiag.FinWait1, sockdiag.Closing, sockdiag.LastAck))
		for _, s := range sockets {
			if p.layout.counts(s.Local) && undelivered(s) {
				owing++
			}
		}
		return err != nil || owing == 0
	}) != nil {
		p.log.Warn("clients have not received everything that Envoy had written", "connections", owing,
			"within", deliveryTime)
	}
}

// Kill ends Envoy at once. An Envoy that was not started by lastcall keeps running.
func (p *Plane) Kill() {
	p.end()
	if c := p.running(); c != nil {
		c.Kill()
		<-c.Done()
	}
}

// Exited is closed when Envoy has exited, and the kernel has delivered what it had written. It is never closed for an
// Envoy that was not started by lastcall.
func (p *Plane) Exited() <-chan struct{} { return p.exited }

// Shut releases everything when the plane is no longer needed.
func (p *Plane) Shut() {
	p.Kill()
	p.over()
	p.work.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table != nil {
		_ = p.table.Close()
		p.table = nil
	}
}

// Resume cancels the drain. Envoy itself cannot: it would send Connection: close on every response from now on, and not
// listen again. So an Envoy that lastcall has started is replaced, and connections that are still open end.
func (p *Plane) Resume(ctx context.Context) error {
	p.end()
	if !p.o.Attach {
		return p.replace(ctx)
	}
	if p.o.FailHealthcheck {
		if err := p.admin.Post(ctx, "/healthcheck/ok"); err != nil {
			return err
		}
	}
	return errors.New("undo the drain of Envoy: it sends Connection: close until it is restarted")
}

// replace ends Envoy and starts it again, unless it has ended by itself.
func (p *Plane) replace(ctx context.Context) error {
	p.mu.Lock()
	old := p.child
	select {
	case <-p.exited:
		p.mu.Unlock()
		return errors.New("undo the drain of Envoy: it has exited")
	default:
	}
	p.child = nil
	p.mu.Unlock()
	err := p.send(ctx, old)
	var next *process.Child
	if err == nil {
		next, err = p.o.start()
	}
	if err != nil {
		close(p.exited)
		return err
	}
	p.follow(next)
	return p.learn(ctx)
}
