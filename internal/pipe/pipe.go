package pipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/logs"
)

// Pipe carries the inbound traffic of a pod. It implements drain.DataPlane.
type Pipe struct {
	cfg    Config
	ctx    context.Context // ends the dials
	cancel context.CancelFunc

	open     atomic.Int64 // connections that we have not ended
	busy     atomic.Int64
	arrivals atomic.Uint64

	extraStreams atomic.Int64 // of HTTP/2, open beyond usualStreams of a connection
	restartsOn   atomic.Int32 // how many restarts there are: without one no connection takes a lock for it
	draining     state        // responses say goodbye
	closing      state        // a connection that becomes idle is closed
	stacks       stacks
	changes      chan struct{}

	mu        sync.Mutex // guards what follows
	listeners []*listener
	first     *conn                    // of the list of all connections
	ended     bool                     // no connection is taken any more
	restarts  []*Restart               // under way
	timers    map[*time.Timer]struct{} // those that have not fired
	throttle  logs.Throttle

	conns    sync.WaitGroup
	accepts  sync.WaitGroup // accept loops; they end with their listeners
	watches  sync.WaitGroup // of certificates and timeouts; they end with ctx
	exited   chan struct{}
	exitOnce sync.Once
}

var _ drain.DataPlane = (*Pipe)(nil)

// Start listens on every inbound and begins to serve. When an address cannot be
// had, nothing is left open.
func Start(cfg Config) (*Pipe, error) {
	cfg.setDefaults()
	p := &Pipe{
		cfg:     cfg,
		changes: make(chan struct{}, 1),
		timers:  make(map[*time.Timer]struct{}),
		exited:  make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, in := range cfg.Inbound {
		l := &listener{p: p, Inbound: in}
		err := l.loadTLS()
		if err == nil {
			err = l.open()
		}
		if err != nil {
			p.Kill()
			return nil, err
		}
		p.listeners = append(p.listeners, l)
	}
	for _, l := range p.listeners {
		p.accepts.Go(l.accept)
	}
	p.watches.Go(p.watchTimeouts)
	return p, nil
}

// Addr is where inbound i listens, with its port when the configuration said 0.
func (p *Pipe) Addr(i int) net.Addr { return p.listeners[i].Addr() }

// Drain makes every response from now on the last of its connection.
func (p *Pipe) Drain(context.Context) error {
	p.draining.begin()
	p.changed()
	for _, c := range p.all() {
		c.mu.Lock()
		isH2 := c.mode == modeH2 && !c.end.done()
		c.mu.Unlock()
		if isH2 { // HTTP/1 says it with its next response
			c.sendGoAway()
		}
	}
	return nil
}

// Resume serves as before the Drain, and listens again where it has stopped.
func (p *Pipe) Resume(context.Context) error {
	p.draining.end()
	p.closing.end()
	p.stopTimers()
	for _, c := range p.all() {
		c.lastWordRequested.Store(false)
	}
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Resume())
	}
	return errors.Join(errs...)
}

// Activity is always known, and of this moment.
func (p *Pipe) Activity(context.Context) (drain.Activity, error) {
	var raced uint64
	for _, l := range p.listeners {
		raced += l.stats.Raced.Load()
	}
	return drain.Activity{
		Known:       true,
		Connections: int(p.open.Load()),
		Busy:        int(p.busy.Load()),
		Arrivals:    p.arrivals.Load(),
		Raced:       raced,
	}, nil
}

// Changes pushes every change that follows Drain.
func (p *Pipe) Changes() <-chan struct{} { return p.changes }

func (p *Pipe) changed() {
	if p.draining.holds() {
		select {
		case p.changes <- struct{}{}:
		default:
		}
	}
}

// CloseIdle ends the connections that have been idle for idleFor, those that
// have not yet when they will have been, and from now on each that becomes idle.
func (p *Pipe) CloseIdle(_ context.Context, idleFor time.Duration) error {
	p.closing.begin()
	p.stopTimers()
	var told []*conn
	for _, c := range p.all() {
		if c.sendEndIfIdle(idleFor) {
			told = append(told, c)
		} else {
			p.endLater(c, idleFor, unreadTime)
		}
	}
	for _, c := range told { // only now: thousands wait for their FIN
		c.linger()
	}
	p.endEarly()
	return nil
}

// endLater ends a connection when it has been idle for idleFor, and what has come is
// read: looked at again after a pause, for that need be no request. One that works is
// ended with its work.
func (p *Pipe) endLater(c *conn, idleFor, pause time.Duration) {
	left, idle := c.idleLeft(idleFor)
	if !idle {
		return
	}
	p.after(max(left, pause), func() {
		if p.closing.holds() && !c.endIfIdle(idleFor) {
			p.endLater(c, idleFor, min(2*pause, time.Second))
		}
	})
}

// endEarly asks those conversations for their last word that the configuration
// does not let wait for the last call, one after another.
func (p *Pipe) endEarly() {
	var found []*conn
	for _, c := range p.busiest() {
		c.mu.Lock()
		if c.endsEarlyLocked() {
			found = append(found, c)
		}
		c.mu.Unlock()
	}
	spread := cmp.Or(p.cfg.Spread, defaultEarlySpread)
	for i, c := range found {
		p.after(spread*time.Duration(i)/time.Duration(len(found)), func() { c.requestLastWord(true) })
	}
}

// after calls f after d, unless stopTimers comes before.
func (p *Pipe) after(d time.Duration, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		p.mu.Lock()
		_, armed := p.timers[t]
		delete(p.timers, t)
		p.mu.Unlock()
		if armed {
			f()
		}
	})
	p.timers[t] = struct{}{}
}

func (p *Pipe) stopTimers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.timers {
		t.Stop()
	}
	clear(p.timers)
}

// StopAccepting closes the listeners, each after the connections in its queue have been
// accepted. They are closed even when ctx ends before.
func (p *Pipe) StopAccepting(ctx context.Context) error {
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Open lists the busy connections.
func (p *Pipe) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	var out []drain.Conversation
	for _, c := range p.busiest() {
		c.mu.Lock()
		out = append(out, c.describeLocked()...)
		c.mu.Unlock()
		if len(out) >= most {
			return out[:most], nil
		}
	}
	return out, nil
}

// LastCall ends every connection: the busy ones one after another over a part of
// window, the oldest first, then the idle ones. Who is within a message that is
// worth finishing has the rest of window for it.
func (p *Pipe) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	began := time.Now()
	p.closing.begin()
	p.stopTimers()
	stopped := p.StopAccepting(ctx) // whatever it says, the listeners are closed
	var out []drain.Conversation
	var words []waiting
	asked := make(map[*lastWord]bool)
	end := func(c *conn) {
		was, word := c.endAtLastCall()
		out = append(out, was...)
		if word != nil && !asked[word] {
			asked[word] = true
			words = append(words, waiting{c, word})
		}
	}
	busy := p.busiest()
	spread := p.cfg.spread(window)
	for i, c := range busy {
		// By the clock, not by pauses: thousands of short ones take long.
		due := time.Until(began.Add(spread * time.Duration(i) / time.Duration(len(busy))))
		if due >= time.Millisecond && ctx.Err() == nil {
			select {
			case <-time.After(due):
			case <-ctx.Done(): // no time left to be gentle
			}
		}
		end(c)
	}
	for _, c := range p.all() {
		end(c)
	}
	return append(out, p.awaitLastWords(ctx, words, began.Add(window))...), stopped
}

// Close ends the pipe once nothing is busy: it returns when the peers have all
// that was written for them, and the access log its last line. Connections of
// which only the client's FIN is missing are left to the end of the process, and
// else wait for it as always: to clean up after thousands takes as long as all of
// their goodbyes. With an access log they are not, for their end may be a line.
func (p *Pipe) Close(ctx context.Context) error {
	_ = p.StopAccepting(ctx)
	p.closeListeners()
	_ = p.CloseIdle(ctx, 0)
	// The kernel says by no event that a peer has acknowledged the last byte. A
	// peer that takes nothing for lingerTime is dead or does not want it.
	var before int
	moved := time.Now()
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		open, unsent := p.unfinished()
		if unsent != before {
			before, moved = unsent, time.Now()
		}
		if open == 0 && (unsent == 0 || time.Since(moved) > lingerTime) {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("close the pipe: %d connections are still open: %w", open, ctx.Err())
		}
	}
	if p.cfg.AccessLog != nil {
		p.endAll()
		return nil
	}
	p.beginEnd()
	p.exit()
	return nil
}

// Kill ends everything at once.
func (p *Pipe) Kill() {
	p.closeListeners()
	p.endAll()
}

func (p *Pipe) closeListeners() {
	for _, l := range p.listeners {
		_ = l.Listener.Close()
	}
	p.accepts.Wait()
}

// ReloadCertificates reloads the certificates of all listeners now. One that fails to load leaves the previous one in use,
// and is logged.
func (p *Pipe) ReloadCertificates() {
	for _, l := range p.listeners {
		if l.tls != nil {
			l.tls.Reload()
		}
	}
}

// Exited is closed when Close or Kill has ended the pipe.
func (p *Pipe) Exited() <-chan struct{} { return p.exited }

// endAll shuts what is left and waits for its goroutines.
func (p *Pipe) endAll() {
	p.beginEnd()
	for _, c := range p.all() {
		c.abort()
	}
	p.conns.Wait()
	p.watches.Wait()
	p.exit()
}

// beginEnd lets nothing new begin.
func (p *Pipe) beginEnd() {
	p.stopTimers()
	p.cancel()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
}

func (p *Pipe) exit() {
	p.exitOnce.Do(func() {
		if p.cfg.AccessLog != nil {
			p.cfg.AccessLog.Close()
		}
		close(p.exited)
	})
}

// unfinished is what the end has to wait for: the connections that we have not
// ended, and how many bytes the clients of the others have not got yet.
func (p *Pipe) unfinished() (open, unsent int) {
	for _, c := range p.all() {
		c.mu.Lock()
		over, uncounted := c.end.done(), c.hasWorkLocked() && !c.busy
		c.mu.Unlock()
		switch {
		case over:
			// Our FIN counts as a byte, and a client that says nothing more may
			// take its time (40 ms) to acknowledge it: that is not worth waiting for.
			unsent += max(0, c.client.Unsent()-1)
		case uncounted: // a probe, an ignored port: nobody waits for it
		default:
			open++
		}
	}
	return open, unsent
}

// add takes a connection into the list. It returns false when the pipe has ended.
func (p *Pipe) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	if c.next = p.first; c.next != nil {
		c.next.prev = c
	}
	p.first = c
	p.conns.Add(1)
	return true
}

func (p *Pipe) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		p.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	p.conns.Done()
}

func (p *Pipe) all() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*conn
	for c := p.first; c != nil; c = c.next {
		out = append(out, c)
	}
	return out
}

// complain logs what is wrong with the outside, each message once a second at
// most: a broken app must not fill the disk.
func (p *Pipe) warn(msg string, attrs ...any) { p.warnEvery(time.Second, msg, attrs...) }

// warnEvery is complain for what goes on for long.
func (p *Pipe) warnEvery(interval time.Duration, msg string, attrs ...any) {
	p.throttle.Warn(p.cfg.Log, interval, msg, attrs...)
}

// busiest are the busy connections, the oldest conversation first.
func (p *Pipe) busiest() []*conn {
	type aged struct {
		c   *conn
		age drain.Millis
	}
	var found []aged
	for _, c := range p.all() {
		c.mu.Lock()
		was := c.describeLocked()
		c.mu.Unlock()
		if len(was) > 0 {
			found = append(found, aged{c, was[0].Age})
		}
	}
	slices.SortStableFunc(found, func(a, b aged) int { return cmp.Compare(b.age, a.age) })
	out := make([]*conn, len(found))
	for i := range found {
		out[i] = found[i].c
	}
	return out
}
