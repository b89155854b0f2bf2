package pipe

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Restart is the start of the app, or the restart of one of the app's containers while the pod continues: connections
// to its ports announce their close, and new ones wait until the app is back. The listeners stay open.
type Restart struct {
	p     *Pipe
	ports []uint16      // sorted
	all   bool          // every port is the container's
	wait  time.Duration // how long a connection waits for the app

	released, ended chan struct{} // closed when the app accepts connections again, and by End
	release, end    func()        // Release, End; each once
}

// justUsed is how long a connection must be idle before a restart ends it: else a request is probably in flight.
const justUsed = 100 * time.Millisecond

// BeginRestart begins the restart of the container on ports, nil for all. New connections wait up to wait, or for End.
func (p *Pipe) BeginRestart(ports []uint16, wait time.Duration) *Restart {
	r := &Restart{
		p: p, ports: slices.Sorted(slices.Values(ports)), all: ports == nil, wait: wait,
		released: make(chan struct{}), ended: make(chan struct{}),
	}
	r.release = sync.OnceFunc(func() { close(r.released) })
	r.end = sync.OnceFunc(func() {
		p.mu.Lock()
		p.restarts = slices.DeleteFunc(slices.Clone(p.restarts), func(other *Restart) bool { return other == r })
		p.mu.Unlock()
		p.restartsOn.Add(-1)
		close(r.ended)
	})
	p.restartsOn.Add(1) // before the loop below: see connected
	p.mu.Lock()
	p.restarts = append(p.restarts, r)
	p.mu.Unlock()
	for _, c := range p.all() {
		if !r.covers(c) {
			continue
		}
		c.mu.Lock()
		old := c.app != nil
		c.mu.Unlock()
		if !old { // it is waiting for the new container
			continue
		}
		c.restart.leaves.Store(true)
		if !c.endIfIdle(justUsed) {
			c.continueClosing()
		}
	}
	return r
}

// InFlight is how many connections have an unanswered request. Tunnels do not count: nothing marks their end.
func (r *Restart) InFlight() int {
	n := 0
	for _, c := range r.p.all() {
		if !r.covers(c) {
			continue
		}
		connects := c.restart.dialing.Load() // read before c.app
		c.mu.Lock()
		if !c.end.done() &&
			(connects || c.app != nil && c.restart.leaves.Load() && !c.isTunnelLocked() &&
				(c.arriving || c.hasRequestLocked())) {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// Release lets waiting connections try the app again. A refused one continues to wait.
func (r *Restart) Release() { r.release() }

// End ends the restart: from now on a refused connection is answered with 503 at once.
func (r *Restart) End() { r.end() }

func (r *Restart) covers(c *conn) bool {
	if r.all {
		return true
	}
	_, found := slices.BinarySearch(r.ports, c.appPort())
	return found
}

// restarting returns the restart that concerns a connection, if any: that of its port's container, else any other with
// isOurs false. An undeclared port may belong to any container, so a refusal is not final during a restart.
func (p *Pipe) restarting(c *conn) (r *Restart, isOurs bool) {
	if p.restartsOn.Load() == 0 {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r = range p.restarts {
		if r.covers(c) {
			return r, true
		}
	}
	return r, false
}

// appPort is the port of the app; 0 if unknown.
func (c *conn) appPort() uint16 {
	if c.in.App == "" {
		return c.origin.Port()
	}
	_, text, err := net.SplitHostPort(c.in.App)
	if err != nil {
		return 0
	}
	port, _ := net.LookupPort("tcp", text)
	return uint16(port)
}

var errRestarting = errors.New("the app is starting and does not serve in time")

// retryRefused is how often a refused connection tries the app again, in case the event that ends the restart is late.
const retryRefused = 250 * time.Millisecond

func (u *up) dialApp() (*tcp.Socket, error) {
	c := u.c
	for {
		c.restart.dialing.Store(true) // first: a restart that begins now counts it
		r, isOurs := c.p.restarting(c)
		if r == nil {
			return u.dialOnce()
		}
		if c.restart.deadline.IsZero() {
			c.restart.deadline = time.Now().Add(r.wait)
		}
		if isOurs {
			c.restart.dialing.Store(false)
			if !u.await(r.released, r.ended) {
				return nil, errRestarting
			}
		}
		app, err := u.dialOnce()
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return app, err
		}
		c.restart.dialing.Store(false)
		retry, cancel := context.WithTimeout(c.p.ctx, retryRefused)
		again := u.await(retry.Done(), r.ended)
		cancel()
		if !again {
			return nil, errRestarting
		}
	}
}

// connected follows dialApp: if a restart has begun meanwhile, the container that was reached is about to stop.
func (u *up) connected() {
	c := u.c
	if r, isOurs := c.p.restarting(c); isOurs {
		select {
		case <-r.released:
		default:
			c.restart.leaves.Store(true)
		}
	}
	c.restart.dialing.Store(false)
}

// await waits for either event. It returns false if the connection has waited for too long, or has ended.
func (u *up) await(one, other <-chan struct{}) bool {
	select {
	case <-one:
	case <-other:
	case <-time.After(time.Until(u.c.restart.deadline)):
		return false
	case <-u.c.p.ctx.Done():
		return false
	}
	return !u.c.hasEnded()
}

// dialOnce connects to the app, and waits for a descriptor if there is none.
func (u *up) dialOnce() (app *tcp.Socket, err error) {
	c := u.c
	wait := tcp.Patience{Most: c.p.cfg.DialTimeout, Gone: c.isGone, Reserved: c.reserved}
	for until := time.Now().Add(wait.Most); ; c.p.awaitFiles(filesPause) {
		if c.in.App == "" {
			app, err = tcp.DialCaptured(c.p.ctx, c.origin, c.client.Peer().Addr(), wait)
		} else {
			app, err = tcp.Dial(c.p.ctx, c.in.App, wait)
		}
		if err == nil || !c.p.isOutOfFiles(err) || c.isGone() || !time.Now().Before(until) {
			return app, err
		}
	}
}

// isGone reports whether nothing waits for a connection to the app any longer.
func (c *conn) isGone() bool {
	return c.hasEnded() || c.client.IsReset()
}
