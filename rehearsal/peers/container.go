package peers

import (
	"context"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// parent is a container whose PID 1 is a peer's agent, by its model, with Envoy
// as its child.
type parent struct {
	envoy  node.Container
	admin  admin
	atTerm func(ctx context.Context, a admin)

	once    sync.Once
	running sync.WaitGroup // Terminate's, until Envoy has ended
}

// Terminate begins what the agent does at SIGTERM; a second one is swallowed, as by
// most of them.
func (p *parent) Terminate() error {
	p.once.Do(func() {
		p.running.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			p.running.Go(func() {
				<-p.envoy.Done()
				cancel()
			})
			p.atTerm(ctx, p.admin)
			_ = p.envoy.Kill() // it dies with its PID namespace, if not before
		})
	})
	return nil
}

// Kill kills Envoy and with it the container.
func (p *parent) Kill() error { return p.envoy.Kill() }

// Done is closed when Envoy has ended: the agent ends then too.
func (p *parent) Done() <-chan struct{} { return p.envoy.Done() }

// Ended is when Envoy was reaped.
func (p *parent) Ended() time.Time {
	if at, ok := p.envoy.(interface{ Ended() time.Time }); ok {
		return at.Ended()
	}
	<-p.envoy.Done()
	return time.Now()
}

// attendant is a container that ends at SIGTERM: a shutdown manager after its hook.
type attendant struct {
	once sync.Once
	done chan struct{}
}

func newAttendant() *attendant { return &attendant{done: make(chan struct{})} }

// Terminate ends it.
func (a *attendant) Terminate() error {
	a.once.Do(func() { close(a.done) })
	return nil
}

// Kill ends it.
func (a *attendant) Kill() error { return a.Terminate() }

// Done is closed when it has ended.
func (a *attendant) Done() <-chan struct{} { return a.done }
