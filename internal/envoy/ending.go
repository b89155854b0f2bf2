package envoy

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/process"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// reportMost bounds the conversations of a last call that are named.
const reportMost = 1000

// stopTimeout is what a last call leaves Envoy to close its listeners.
const stopTimeout = time.Second

// LastCall stops accepting and says what is still open. Envoy has no way to end
// single conversations: they end when it does.
func (p *Plane) LastCall(ctx context.Context, _ time.Duration) ([]drain.Conversation, error) {
	open, err := p.Open(ctx, reportMost)
	for i := range open {
		open[i].Ending = "closed"
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return open, errors.Join(err, p.StopAccepting(ctx))
}

// leaveTime is how long an Envoy may take to leave after SIGTERM, and again after
// /quitquitquit. It needs 7 ms (measured).
const leaveTime = time.Second

// Close ends Envoy so that it flushes its access log and its stats, and returns
// when the kernel has delivered what Envoy had written. One that does not leave
// is killed. An Envoy that others have started is left to them.
func (p *Plane) Close(ctx context.Context) error {
	p.end()
	c := p.running()
	if c == nil {
		return nil
	}
	if err := p.send(ctx, c); err != nil {
		return err
	}
	p.awaitDelivery(ctx)
	return nil
}

// send makes Envoy leave. SIGTERM and /quitquitquit end it in the same way;
// SIGTERM needs no round trip, and no admin that answers.
func (p *Plane) send(ctx context.Context, c *process.Child) error {
	select {
	case <-c.Done():
		return nil // its number may be another's by now
	default:
	}
	signalGroup(c, syscall.SIGTERM)
	if !leaves(ctx, c) && ctx.Err() == nil {
		p.log.Warn("Envoy does not leave after SIGTERM: told by its admin port", "after", leaveTime)
		ask, cancel := context.WithTimeout(ctx, leaveTime)
		err := p.admin.Quit(ask)
		if cancel(); (err != nil || !leaves(ctx, c)) && ctx.Err() == nil {
			p.log.Warn("Envoy does not leave: killed", "error", err)
			signalGroup(c, syscall.SIGKILL)
			select {
			case <-c.Done():
			case <-ctx.Done():
			}
		}
	}
	select {
	case <-c.Done():
		return nil
	default:
		return fmt.Errorf("end envoy: %w", ctx.Err())
	}
}

// leaves waits for Envoy's end, and for that of all that it has started.
func leaves(ctx context.Context, c *process.Child) bool {
	short, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	select {
	case <-c.Done():
	case <-short.Done():
		return false
	}
	// drain.Termination ends ctx when Envoy has ended; what a script has left behind
	// gets its time all the same.
	for end := within(ctx, leaveTime); groupLives(c); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// within is d from now, or ctx's deadline if that is sooner. That ctx was cancelled, as
// it is when Envoy has ended, does not count.
func within(ctx context.Context, d time.Duration) time.Time {
	end := time.Now().Add(d)
	if last, ok := ctx.Deadline(); ok && last.Before(end) {
		return last
	}
	return end
}

// deliveryTime bounds how long an end waits for slow readers. It comes out of the
// margin that is kept before the kubelet's SIGKILL.
const deliveryTime = 500 * time.Millisecond

// awaitDelivery waits until the kernel has handed to the clients what a dead
// Envoy had written: with a pod's last process its network goes, and what was
// still on its way.
func (p *Plane) awaitDelivery(ctx context.Context) {
	for end := within(ctx, deliveryTime); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		sockets, err := p.sockets(sockdiag.Of(sockdiag.FinWait1, sockdiag.Closing, sockdiag.LastAck))
		owing := 0
		for _, s := range sockets {
			if p.layout.counts(s.Local) && undelivered(s) {
				owing++
			}
		}
		p.mu.Unlock()
		if err != nil || owing == 0 {
			return
		}
		if time.Now().After(end) {
			p.log.Warn("clients have not taken what Envoy had written", "connections", owing, "within", deliveryTime)
			return
		}
	}
}

// Kill ends Envoy at once. An Envoy that others have started is left to them.
func (p *Plane) Kill() {
	p.end()
	if c := p.running(); c != nil {
		c.Kill()
		<-c.Done()
	}
}

// Exited is closed when Envoy has ended. Of an Envoy that others have started it
// is not known.
func (p *Plane) Exited() <-chan struct{} { return p.exited }

// Shut lets go of everything when the plane is needed no more.
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
