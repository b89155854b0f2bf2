package traffic

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Endpoints is a client's view of the pods' addresses, which changes late.
type Endpoints struct {
	delay   func() time.Duration
	publish func(addresses []string)

	mu      sync.Mutex // guards list; held while publishing, so that lists come in order
	list    []string
	pending sync.WaitGroup
}

// NewEndpoints returns a view that publishes its list at once, and again when a delay has passed after a change.
func NewEndpoints(delay func() time.Duration, addresses []string, publish func([]string)) *Endpoints {
	e := &Endpoints{delay: delay, publish: publish, list: slices.Clone(addresses)}
	publish(slices.Clone(e.list))
	return e
}

// Replace replaces an address after the delay, unless ctx ends before. The next change comes after all delays.
func (e *Endpoints) Replace(ctx context.Context, old, next string) {
	after := e.delay()
	e.pending.Go(func() {
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(slices.DeleteFunc(e.list, func(a string) bool { return a == old }), next)
		e.publish(slices.Clone(e.list))
	})
}

// Wait returns when no change is pending.
func (e *Endpoints) Wait() { e.pending.Wait() }
