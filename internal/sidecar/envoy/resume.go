package envoy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errCannotResume is Envoy's own limit.
var errCannotResume = errors.New("cannot undo the drain of an Envoy that lastcall has not started: it keeps sending Connection: close and does not listen again until it is restarted")

// replaceTime bounds how long busy connections are waited for before Envoy is replaced.
const replaceTime = time.Second

// Resume cancels the drain. Envoy itself cannot: it would send Connection: close on every response from now on, and not
// listen again. So another Envoy replaces it, when no connection is busy or after a second; connections in the tenth of
// a second between the two are refused.
func (p *Plane) Resume(ctx context.Context) error {
	p.end()
	old := p.running()
	if old == nil {
		if p.o.FailHealthcheck {
			if err := p.admin.HealthcheckFail(ctx, false); err != nil {
				return err
			}
		}
		return errCannotResume
	}
	for end := time.Now().Add(replaceTime); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if a, err := p.Activity(ctx); err == nil && a.Busy == 0 {
			break
		}
	}
	p.mu.Lock()
	p.child = nil // its exit is not the data plane's
	p.mu.Unlock()
	if err := p.send(ctx, old); err != nil {
		old.Kill()
		select {
		case <-old.Done():
		case <-ctx.Done():
			close(p.exited)
			return fmt.Errorf("replace envoy: the old one was killed and has not exited: %w", ctx.Err())
		}
	}
	child, err := p.o.start()
	if err != nil {
		close(p.exited)
		return err
	}
	p.put(child)
	if err := p.admin.awaitReady(ctx, p.log, child.Done()); err != nil {
		return fmt.Errorf("start envoy again: %w", err)
	}
	return p.layOut(ctx, true)
}
