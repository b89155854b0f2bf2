package envoy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errNoWayBack is Envoy's own limit.
var errNoWayBack = errors.New("an Envoy that others have started cannot take its drain back: it goes on saying goodbye on every response, and does not listen again where it has stopped, until it is started anew")

// replaceTime bounds how long those who are busy are waited for before Envoy is
// replaced.
const replaceTime = time.Second

// Resume takes the drain back. Envoy itself cannot: it would say goodbye on every
// response from now on, and not listen again. So another takes its place, when
// nobody is busy or after a second; whoever comes in the tenth of a second between
// the two is refused.
func (p *Plane) Resume(ctx context.Context) error {
	p.end()
	old := p.running()
	if old == nil {
		if p.o.FailHealthcheck {
			if err := p.admin.HealthcheckFail(ctx, false); err != nil {
				return err
			}
		}
		return errNoWayBack
	}
	for end := time.Now().Add(replaceTime); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if a, err := p.Activity(ctx); err == nil && a.Busy == 0 {
			break
		}
	}
	p.mu.Lock()
	p.child = nil // its end is not the data plane's
	p.mu.Unlock()
	if err := p.send(ctx, old); err != nil {
		old.Kill()
		select {
		case <-old.Done():
		case <-ctx.Done():
			close(p.exited)
			return fmt.Errorf("replace envoy: the old one, killed, has not ended: %w", ctx.Err())
		}
	}
	child, err := p.o.start()
	if err != nil {
		close(p.exited)
		return err
	}
	p.put(child)
	if err := p.admin.awaitReady(ctx, child.Done()); err != nil {
		return fmt.Errorf("start envoy anew: %w", err)
	}
	return p.layOut(ctx, true)
}
