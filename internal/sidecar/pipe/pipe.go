package pipe

import (
	"container/list"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/budget"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
)

// Pipe carries the inbound traffic of a pod. It implements drain.DataPlane.
type Pipe struct {
	cfg    Config
	ctx    context.Context // cancels dialling
	cancel context.CancelFunc

	open     atomic.Int64 // connections that have not ended
	busy     atomic.Int64
	opaque   atomic.Int64 // of the busy ones
	arrivals atomic.Uint64
	failed   atomic.Uint64 // requests that the app, which had gone, has not answered

	streamsHeld   atomic.Int64  // bytes of open HTTP/2 streams
	restartsOn    atomic.Int32  // number of restarts: without one, connections take no lock for it
	draining      state         // responses announce the close
	closing       state         // connections that become idle are closed
	idleGrace     atomic.Int64  // the longest idle time of CloseIdle, nanoseconds
	timersStopped atomic.Uint64 // how often: the timers of after that were set before do nothing
	retries       atomic.Int64  // over how long event streams' clients spread their return, nanoseconds; 0: the default
	stacks        stacks
	budget        *budget.Budget
	existing      atomic.Int64 // connections, those that wait for the client's FIN included
	hurried       atomic.Int64 // of them those that no longer wait

	mostConnections int64 // by the memory

	files      int64         // descriptors that the process may have
	filesShort atomic.Bool   // there was none
	filesFreed chan struct{} // signalled when some have been closed, after that
	stops      atomic.Bool   // the listeners are being closed, or are
	idlest     struct {
		sync.Mutex
		list    []idleConn
		listed  time.Time
		hurried time.Time
	}

	opaqueEnds struct{ ended, answered, dropped atomic.Uint64 } // ended is written last and read first

	starting *Restart // of an app that starts with the pipe; nil: it did not

	changes chan struct{}
	work    chan func()  // sides of connections, to goroutines that wait for one
	spare   atomic.Int64 // how many wait

	mu        sync.Mutex // guards the fields below
	listeners []*listener
	conns     list.List  // of all connections, the newest first
	ended     bool       // no connection is accepted any longer
	restarts  []*Restart // in progress
	throttle  logs.Throttle

	running sync.WaitGroup // connections
	accepts sync.WaitGroup // accept loops; they end with their listeners
	watches sync.WaitGroup // of certificates and timeouts; they end with ctx
	exited  chan struct{}
	exit    func() // once
}

var _ drain.DataPlane = (*Pipe)(nil)

// Start listens on every inbound and begins to serve. If one address is unavailable, nothing stays open.
func Start(cfg Config) (*Pipe, error) {
	cfg.setDefaults()
	p := &Pipe{
		cfg:     cfg,
		changes: make(chan struct{}, 1),
		files:   fileLimit(), filesFreed: make(chan struct{}, 1),
		work:   make(chan func()),
		exited: make(chan struct{}),
	}
	p.exit = sync.OnceFunc(func() {
		if cfg.AccessLog != nil {
			cfg.AccessLog.Close()
		}
		close(p.exited)
	})
	var unfinished int64
	p.mostConnections, unfinished = budget.Shares(cfg.Memory, cfg.MaxConnections != 0, slices.ContainsFunc(cfg.Inbound,
		func(in Inbound) bool { return in.TLS != nil }))
	p.budget = budget.New(unfinished)
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
	if cfg.AppStarts > 0 {
		p.starting = p.BeginRestart(nil, cfg.AppStarts)
		p.starting.Release()
	}
	for _, l := range p.listeners {
		p.accepts.Go(l.accept)
	}
	p.watches.Go(p.watchTimeouts)
	return p, nil
}

// AppServes ends the wait for an app that starts: it accepts connections, or never will.
func (p *Pipe) AppServes() {
	if p.starting != nil {
		p.starting.End()
	}
}

// Addr is where inbound i listens, with its port if the configuration has port 0.
func (p *Pipe) Addr(i int) net.Addr { return p.listeners[i].Addr() }

// Close ends the pipe once nothing is busy. It returns when the clients have acknowledged all data and the access log
// has its last line. It does not wait for the FIN of each client: to clean up after thousands of connections takes as
// long as all of their drain. With an access log it does, since the end of a connection may be a line.
func (p *Pipe) Close(ctx context.Context) error {
	_ = p.StopAccepting(ctx)
	p.closeListeners()
	_ = p.CloseIdle(ctx, 0)
	// The kernel has no event for the last acknowledgement. A client without any for lingerTime is dead or does not read.
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
	p.stops.Store(true)
	for _, l := range p.listeners {
		_ = l.Listener.Close()
	}
	p.accepts.Wait()
}

// ReloadCertificates reloads the certificates of all listeners now. One that fails is logged and changes nothing.
func (p *Pipe) ReloadCertificates() {
	for _, l := range p.listeners {
		if l.tls != nil {
			l.tls.Reload()
		}
	}
}

// Exited is closed when Close or Kill has ended the pipe.
func (p *Pipe) Exited() <-chan struct{} { return p.exited }

// endAll ends all connections and waits for their goroutines.
func (p *Pipe) endAll() {
	p.beginEnd()
	for _, c := range p.all() {
		c.abort()
	}
	p.running.Wait()
	p.watches.Wait()
	p.exit()
}

// beginEnd accepts nothing new.
func (p *Pipe) beginEnd() {
	p.stopTimers()
	p.cancel()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
}

// unfinished returns how many connections have not ended, and how many bytes of the others are unacknowledged.
func (p *Pipe) unfinished() (open, unsent int) {
	for _, c := range p.all() {
		c.mu.Lock()
		over, uncounted := c.end.done(), c.hasWorkLocked() && !c.busy
		c.mu.Unlock()
		switch {
		case over:
			// Our FIN counts as a byte, but a client may delay its acknowledgement by 40 ms.
			unsent += max(0, c.client.Unsent()-1)
		case uncounted: // a probe or an ignored port: not waited for
		default:
			open++
		}
	}
	return open, unsent
}

// add adds a connection. It returns false if the pipe has ended.
func (p *Pipe) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	c.element = p.conns.PushFront(c)
	p.existing.Add(1)
	p.running.Add(1)
	return true
}

func (p *Pipe) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns.Remove(c.element)
	p.existing.Add(-1)
	if c.hurried { // not set after its end
		p.hurried.Add(-1)
	}
	p.running.Done()
}

func (p *Pipe) all() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*conn, 0, p.conns.Len())
	for e := p.conns.Front(); e != nil; e = e.Next() {
		out = append(out, e.Value.(*conn))
	}
	return out
}

// warn logs faults of peers, each message once a second at most: a broken app must not fill the disk.
func (p *Pipe) warn(msg string, attrs ...any) { p.warnEvery(time.Second, msg, attrs...) }

// warnEvery is warn for lasting conditions.
func (p *Pipe) warnEvery(interval time.Duration, msg string, attrs ...any) {
	p.throttle.Warn(p.cfg.Log, interval, msg, attrs...)
}
