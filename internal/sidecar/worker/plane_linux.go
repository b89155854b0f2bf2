package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// DefaultStale is the default of Options.Stale.
const DefaultStale = 30 * time.Second

// Options configure a Plane.
type Options struct {
	Signals []Signal // all must be idle

	// Stale is how long a signal may fail before it no longer holds the drain; 0: without a limit.
	Stale time.Duration

	// Heartbeat is how long a busy signal may report the same before it no longer holds the drain; 0: without a limit.
	Heartbeat time.Duration

	Log *slog.Logger
}

// Plane is a worker that is busy until its signals are idle. It implements drain.DataPlane as far as watching allows,
// for one drain.
type Plane struct {
	o         Options
	changes   chan struct{}
	ctx       context.Context // ends the asking
	cancel    context.CancelFunc
	following sync.WaitGroup
	exited    chan struct{}
	exit      func() // closes exited

	mu      sync.Mutex // guards the fields below
	watches []*watch
}

var (
	_ drain.DataPlane = (*Plane)(nil)
	_ drain.Assumer   = (*Plane)(nil)
)

// watch is the state of a signal.
type watch struct {
	signal Signal
	last   answer
	begun  time.Time   // when it was first busy, or failed
	limit  *time.Timer // of a failing signal, or of one that reports the same; nil: none
	stale  string      // why it no longer holds the drain
}

func (w *watch) isBusy() bool { return !w.last.isIdle && w.stale == "" }

// New returns a plane that asks nothing yet. Close or Kill ends it.
func New(o Options) *Plane {
	p := &Plane{o: o, changes: make(chan struct{}, 1), exited: make(chan struct{})}
	p.exit = sync.OnceFunc(func() { close(p.exited) })
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Drain begins to ask.
func (p *Plane) Drain(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.o.Signals {
		p.o.Log.Info("waiting until the worker is idle", "signal", s.text)
		w := &watch{signal: s, begun: time.Now()}
		p.watches = append(p.watches, w)
		p.following.Go(func() {
			s.follow(p.ctx, func(a answer) { p.take(w, a) })
		})
	}
	return nil
}

// take notes an answer.
func (p *Plane) take(w *watch, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	before := w.last
	w.last = a
	if before.isIdle && !a.isIdle {
		w.begun = time.Now()
	}
	switch isSame := a.detail == before.detail && !before.isIdle && before.err == nil; {
	case a.err != nil && before.err == nil:
		p.o.Log.Warn("the signal does not answer: whether the worker is idle is unknown", "signal", w.signal.text,
			"error", a.err, "holds_for", p.o.Stale)
		p.limit(w, p.o.Stale)
	case a.err != nil:
	case a.isIdle && before.isIdle:
	case a.isIdle:
		p.o.Log.Info("idle", "signal", w.signal.text, "after", time.Since(w.begun).Round(time.Millisecond))
		w.stale = ""
		p.limit(w, 0)
	case !isSame || w.limit == nil:
		w.stale = ""
		p.limit(w, p.o.Heartbeat)
	}
	sockdiag.Notify(p.changes)
}

// limit sets when the present state no longer holds the drain; p.mu is held.
func (p *Plane) limit(w *watch, d time.Duration) {
	if w.limit != nil {
		w.limit.Stop()
		w.limit = nil
	}
	if d <= 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if w.limit != timer || p.ctx.Err() != nil {
			return
		}
		if w.stale = fmt.Sprintf("has reported the same for %v", d); w.last.err != nil {
			w.stale = fmt.Sprintf("has not answered for %v: %v", d, w.last.err)
		}
		p.o.Log.Warn("the signal no longer holds the drain: it "+w.stale, "signal", w.signal.text)
		sockdiag.Notify(p.changes)
	})
	w.limit = timer
}

// Activity counts the signals that are not idle.
func (p *Plane) Activity(context.Context) (drain.Activity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := drain.Activity{Known: true}
	for _, w := range p.watches {
		if w.isBusy() {
			a.Busy++
		}
	}
	a.Connections = a.Busy
	return a, nil
}

// Changes receives after each answer.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// Open lists the signals that are not idle.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []drain.Conversation
	for _, w := range p.watches {
		if !w.isBusy() || len(out) == most {
			continue
		}
		c := drain.Conversation{Peer: "the worker", Protocol: "signal", Request: w.signal.text,
			Age: drain.Millis(time.Since(w.begun))}
		switch {
		case w.last.err != nil:
			c.Request += " (" + w.last.err.Error() + ")"
		case w.last.detail != "":
			c.Request += " (" + w.last.detail + ")"
		}
		out = append(out, c)
	}
	return out, nil
}

// LastCall returns the signals that are not idle. The worker's SIGTERM follows.
func (p *Plane) LastCall(ctx context.Context, _ time.Duration) ([]drain.Conversation, error) {
	open, err := p.Open(ctx, len(p.o.Signals))
	for i := range open {
		open[i].Ending = drain.LeftToApp
	}
	return open, err
}

// Assumed lists the signals that no longer held the drain at its end: their workers are assumed to be idle.
func (p *Plane) Assumed() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.watches {
		if w.stale != "" {
			out = append(out, fmt.Sprintf("signal %s: assumed to be idle: it %s", w.signal.text, w.stale))
		}
	}
	return out
}

// Warnings are none: Assumed has the reasons.
func (p *Plane) Warnings() []string { return nil }

// Resume does nothing: the hook of a worker is not cancelled.
func (p *Plane) Resume(context.Context) error { return nil }

// CloseIdle has nothing to close.
func (p *Plane) CloseIdle(context.Context, time.Duration) error { return nil }

// StopAccepting cannot stop the worker from taking work.
func (p *Plane) StopAccepting(context.Context) error { return nil }

// Close ends the asking, and waits for commands that run.
func (p *Plane) Close(ctx context.Context) error {
	p.stop()
	done := make(chan struct{})
	go func() { defer close(done); p.following.Wait() }()
	select {
	case <-done:
		p.exit()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the signals' requests: %w", ctx.Err())
	}
}

// Kill ends the asking.
func (p *Plane) Kill() { p.stop(); p.exit() }

func (p *Plane) stop() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.watches {
		p.limit(w, 0)
	}
}

// Exited is closed when the plane has been closed.
func (p *Plane) Exited() <-chan struct{} { return p.exited }
