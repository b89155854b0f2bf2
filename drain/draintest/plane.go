package draintest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Plane is a drain.DataPlane with scripted clients. Its methods may be called from any goroutine; see Overlaps.
type Plane struct {
	script  Script
	start   time.Time
	changes chan struct{} // capacity 1: signals are merged
	exited  chan struct{}
	stopped chan struct{} // closed by Stop

	mu        sync.Mutex // guards the fields below
	agenda    agenda
	clock     *time.Timer // rings at the next event of the agenda
	now       time.Duration
	clients   []*client
	pushes    bool // Drain has succeeded: changes are pushed
	draining  bool
	refusing  bool
	closeIdle time.Duration // negative: idle connections are kept
	over      bool
	arrivals  uint64

	opaqueEnds drain.OpaqueEnds
	idled      chan struct{} // closed and replaced when a request or a connection ends: Close waits for it

	calls    []Call
	endings  []Ending
	underWay map[Method]int
	overlaps []string
}

var _ drain.DataPlane = (*Plane)(nil)

// New starts the script: its offsets count from now. Clients with a negative At are connected when New returns.
func New(s Script) *Plane {
	p := &Plane{
		script:    s,
		start:     time.Now(),
		changes:   make(chan struct{}, 1),
		exited:    make(chan struct{}),
		stopped:   make(chan struct{}),
		closeIdle: -1,
		idled:     make(chan struct{}),
		underWay:  make(map[Method]int),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = -Forever
	for i, c := range s.Clients {
		if c.Peer == "" {
			c.Peer = fmt.Sprintf("192.0.2.%d:40000", i+1)
		}
		if c.Protocol == "" {
			c.Protocol = "http/1.1"
		}
		p.join(&client{p: p, Client: c})
	}
	if s.Dies > 0 {
		p.agenda.add(s.Dies, func() { p.end(Died) })
	}
	p.clock = time.AfterFunc(Forever, p.ring)
	p.catchUp()
	return p
}

// Stop ends the script: no event follows, and calls that hang return. It is not needed for a plane that has ended and
// whose calls have returned.
func (p *Plane) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock.Stop()
	p.agenda = nil
	select {
	case <-p.stopped:
	default:
		close(p.stopped)
	}
}

// StopApp is the app's SIGTERM: it ends each open connection of "tcp" after its Finishes.
func (p *Plane) StopApp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp()
	for _, c := range p.clients {
		if c.Protocol != "tcp" || !c.open {
			continue
		}
		p.agenda.add(p.now+max(0, c.Finishes), func() {
			if !c.open {
				return
			}
			p.opaqueEnds.Ended++
			how := Answered
			if c.Finishes < 0 {
				how = Died
				p.opaqueEnds.Dropped++
			} else {
				p.opaqueEnds.Answered++
			}
			c.end(how)
		})
	}
	p.settle()
}

// Drain makes every response from now on the last of its connection.
func (p *Plane) Drain(ctx context.Context) error {
	return p.call(ctx, Drain, 0, func(Fault) error {
		p.pushes, p.draining = true, true
		return nil
	})
}

// Resume undoes Drain, CloseIdle, StopAccepting and LastCall.
func (p *Plane) Resume(ctx context.Context) error {
	return p.call(ctx, Resume, 0, func(Fault) error {
		p.draining, p.refusing, p.closeIdle = false, false, -1
		return nil
	})
}

// Activity counts the connections.
func (p *Plane) Activity(ctx context.Context) (a drain.Activity, err error) {
	err = p.call(ctx, Activity, 0, func(f Fault) error {
		if !f.Unknown {
			a = p.activity()
		}
		if f.Behind {
			a.ArrivalsAsOf = p.start.Add(f.From)
		}
		return nil
	})
	return a, err
}

// Changes is nil when the script says Polled.
func (p *Plane) Changes() <-chan struct{} {
	if p.script.Polled {
		return nil
	}
	return p.changes
}

// CloseIdle closes connections that have been idle for idleFor, now and later.
func (p *Plane) CloseIdle(ctx context.Context, idleFor time.Duration) error {
	return p.call(ctx, CloseIdle, idleFor, func(Fault) error {
		p.closeIdle = idleFor
		for _, c := range p.clients {
			c.closeWhenIdle()
		}
		return nil
	})
}

// StopAccepting refuses new connections.
func (p *Plane) StopAccepting(ctx context.Context) error {
	return p.call(ctx, StopAccepting, 0, func(Fault) error {
		p.refusing = true
		return nil
	})
}

// Open lists the busy conversations, the oldest first.
func (p *Plane) Open(ctx context.Context, most int) (open []drain.Conversation, err error) {
	err = p.call(ctx, Open, 0, func(Fault) error {
		for _, c := range p.busy() {
			if len(open) < most {
				open = append(open, c.conversation(""))
			}
		}
		return nil
	})
	return open, err
}

// LastCall ends everything at once, whatever the window, and returns the busy conversations.
func (p *Plane) LastCall(ctx context.Context, window time.Duration) (open []drain.Conversation, err error) {
	err = p.call(ctx, LastCall, window, func(Fault) error {
		p.refusing, p.closeIdle = true, 0
		for _, c := range p.busy() {
			ending := drain.EndingReply
			if c.Protocol == "tcp" {
				ending = drain.EndingFIN
			}
			open = append(open, c.conversation(ending))
			c.end(Called)
		}
		for _, c := range p.clients {
			c.closeWhenIdle()
		}
		return nil
	})
	return open, err
}

// Close refuses new connections, closes idle ones and waits for busy ones.
func (p *Plane) Close(ctx context.Context) error {
	return p.call(ctx, Close, 0, func(Fault) error {
		p.refusing, p.closeIdle = true, 0
		for _, c := range p.clients {
			c.closeWhenIdle()
		}
		for !p.over && p.activity().Connections > 0 {
			idled := p.idled
			p.mu.Unlock()
			select {
			case <-idled:
			case <-ctx.Done():
			}
			p.mu.Lock()
			if p.catchUp(); ctx.Err() != nil {
				return fmt.Errorf("%d connections are open: %w", p.activity().Connections, ctx.Err())
			}
		}
		p.end(Killed) // nothing is left to kill
		return nil
	})
}

// Kill ends everything at once.
func (p *Plane) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp()
	began, n := p.now, len(p.calls)
	p.calls = append(p.calls, Call{Method: Kill, At: began, UnderWay: true})
	defer func() { p.calls[n].Took, p.calls[n].UnderWay = p.now-began, false }()
	if fault := p.fault(Kill, began); fault.Hang || fault.Delay > 0 {
		fault.IgnoresContext = true
		p.mu.Unlock()
		late := p.late(context.Background(), fault)
		p.mu.Lock()
		if p.catchUp(); late != nil {
			return
		}
	}
	p.end(Killed)
}

// Exited is closed when the plane has ended: by Close, by Kill, or by script.
func (p *Plane) Exited() <-chan struct{} { return p.exited }

// call records one call of a method and applies its fault. f is the effect, which runs with p.mu held.
func (p *Plane) call(ctx context.Context, m Method, with time.Duration, f func(Fault) error) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp()
	began, n := p.now, len(p.calls)
	p.calls = append(p.calls, Call{Method: m, At: began, With: with, UnderWay: true})
	for other, running := range p.underWay {
		if running > 0 {
			p.overlaps = append(p.overlaps, fmt.Sprintf("%s during %s at %v", m, other, began))
		}
	}
	p.underWay[m]++
	defer func() {
		p.underWay[m]--
		p.calls[n].Took, p.calls[n].Err, p.calls[n].UnderWay = p.now-began, err, false
	}()

	fault := p.fault(m, began)
	if fault.Hang || fault.Delay > 0 {
		p.mu.Unlock()
		late := p.late(ctx, fault)
		p.mu.Lock()
		if p.catchUp(); late != nil {
			return fmt.Errorf("%s: %w", m, late)
		}
	}
	if fault.Err != nil {
		return fault.Err
	}
	if p.over && m != Close {
		return fmt.Errorf("%s: %w", m, ErrEnded)
	}
	defer p.settle() // the change may be due at once
	return f(fault)
}

func (p *Plane) fault(m Method, at time.Duration) Fault {
	for _, f := range p.script.Faults {
		if f.Method == m && at >= f.From && (f.To == 0 || at < f.To) {
			return f
		}
	}
	return Fault{}
}

// late waits for the delay, for ctx, whose error it returns, or for Stop.
func (p *Plane) late(ctx context.Context, f Fault) error {
	var answer <-chan time.Time
	if !f.Hang {
		clock := time.NewTimer(f.Delay)
		defer clock.Stop()
		answer = clock.C
	}
	over := ctx.Done()
	if f.IgnoresContext {
		over = nil
	}
	select {
	case <-answer:
		return nil
	case <-p.stopped:
		return ErrEnded
	case <-over:
		if f.Hastens {
			return nil
		}
		return ctx.Err()
	}
}
