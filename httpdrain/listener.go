package httpdrain

import (
	"context"
	"errors"
)

// StopAccepting is drain.DataPlane's.
func (p *Plane) StopAccepting(ctx context.Context) error {
	p.mu.Lock()
	listeners := p.listeners
	p.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Stop(ctx))
	}
	return errors.Join(errs...)
}
