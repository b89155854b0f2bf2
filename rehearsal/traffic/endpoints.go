package traffic

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Endpoints is a client's view of the deployment's pods. Each change arrives after its own delay, so that changes may even
// arrive out of order.
type Endpoints struct {
	latest  time.Duration
	publish func(addresses []string)

	mu      sync.Mutex // guards what follows; held while publishing, so that lists come in order
	list    []string
	removed map[string]bool // removed before it was added
	pending sync.WaitGroup
}

// NewEndpoints returns a view that publishes its list at once and after each change. A change takes 0 to latest, at random.
func NewEndpoints(latest time.Duration, addresses []string, publish func([]string)) *Endpoints {
	e := &Endpoints{latest: latest, publish: publish, list: slices.Clone(addresses), removed: make(map[string]bool)}
	publish(slices.Clone(e.list))
	return e
}

// Add adds an address after its delay, unless ctx ends before.
func (e *Endpoints) Add(ctx context.Context, address string) {
	e.later(ctx, func() {
		if !e.removed[address] {
			e.list = append(e.list, address)
		}
	})
}

// Remove removes an address after its delay, unless ctx ends before.
func (e *Endpoints) Remove(ctx context.Context, address string) {
	e.later(ctx, func() {
		e.removed[address] = true
		e.list = slices.DeleteFunc(e.list, func(a string) bool { return a == address })
	})
}

// Wait returns when no change is pending.
func (e *Endpoints) Wait() { e.pending.Wait() }

func (e *Endpoints) later(ctx context.Context, change func()) {
	after := time.Duration(rand.Int64N(int64(e.latest) + 1))
	e.pending.Go(func() {
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		change()
		e.publish(slices.Clone(e.list))
	})
}
