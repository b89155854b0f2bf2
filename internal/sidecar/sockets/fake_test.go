package sockets

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const (
	fakePort  = 8080
	fakeJiffy = 4 * time.Millisecond // CONFIG_HZ=250
)

// fakeKernel has connections that are played by hand, and the kernel's clock.
type fakeKernel struct {
	mu         sync.Mutex // guards the fields below
	conns      []*fakeConn
	number     uint64
	broken     bool
	noListener bool // no process listens
	acks       acks
	gone       chan struct{}     // nil: it does not report destroyed sockets
	ended      []sockdiag.Socket // destroyed and not yet reported
}

type fakeConn struct {
	k *fakeKernel
	sockdiag.Socket
	came, went, acked time.Time
}

func (k *fakeKernel) kernel() kernel {
	return kernel{
		open: func() (table, error) { return k, nil },
		watch: func([]uint16) (sockdiag.Reports, error) {
			if k.gone == nil {
				return nil, errors.New("not here")
			}
			return fakeReports{k}, nil
		},
		acks: func([]uint16) (acks, error) { return k.acks, nil },
	}
}

type fakeReports struct{ k *fakeKernel }

func (f fakeReports) Gone() <-chan struct{} { return f.k.gone }
func (f fakeReports) Close() error          { return nil }

func (f fakeReports) Ended() ([]sockdiag.Socket, bool) { return f.k.report(), false }

func (k *fakeKernel) report() []sockdiag.Socket {
	k.mu.Lock()
	defer k.mu.Unlock()
	ended := k.ended
	k.ended = nil
	return ended
}

func (k *fakeKernel) Close() error { return nil }

func (k *fakeKernel) Sockets(states sockdiag.States, _ []uint16) (out []sockdiag.Socket, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken {
		return nil, errors.New("no table today")
	}
	now := time.Now().Truncate(fakeJiffy)
	if states&sockdiag.Of(sockdiag.Listen) != 0 && !k.noListener {
		at := netip.AddrPortFrom(netip.IPv4Unspecified(), fakePort)
		out = append(out, sockdiag.Socket{State: sockdiag.Listen, Local: at})
	}
	for _, c := range k.conns {
		if states&sockdiag.Of(c.State) == 0 {
			continue
		}
		s := c.Socket
		s.LastReceived, s.LastSent, s.LastAcked = now.Sub(c.came), now.Sub(c.went), now.Sub(c.acked)
		out = append(out, s)
	}
	return out, nil
}

func (k *fakeKernel) connects() *fakeConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.number++
	now := time.Now().Truncate(fakeJiffy)
	c := &fakeConn{k: k, came: now, went: now, acked: now, Socket: sockdiag.Socket{
		State: sockdiag.Established, Cookie: k.number, MSS: 1448,
		Local:  netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), fakePort),
		Remote: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), uint16(40000+k.number)),
	}}
	k.conns = append(k.conns, c)
	return c
}

func (c *fakeConn) do(f func(now time.Time)) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	f(time.Now().Truncate(fakeJiffy))
}

func (c *fakeConn) asks() {
	c.do(func(now time.Time) { c.Received += 100; c.SegmentsReceived++; c.came, c.acked = now, now })
}

// answers, and the client acknowledges it at once.
func (c *fakeConn) answers() {
	c.do(func(now time.Time) { c.Acked += 200; c.SegmentsSent++; c.went, c.acked = now, now })
}

func (c *fakeConn) acknowledges() { c.do(func(now time.Time) { c.acked = now }) }

func (c *fakeConn) halfClose() {
	c.do(func(time.Time) { c.State = sockdiag.CloseWait; c.Received++ })
}

// closes: it is gone from the table, and the kernel reports it.
func (c *fakeConn) closes() {
	c.do(func(time.Time) {
		c.k.ended = append(c.k.ended, c.Socket)
		for i, other := range c.k.conns {
			if other == c {
				c.k.conns = append(c.k.conns[:i:i], c.k.conns[i+1:]...)
				break
			}
		}
		if c.k.gone != nil {
			select {
			case c.k.gone <- struct{}{}:
			default:
			}
		}
	})
}

// plays does its steps: a word is an event of the connection, a duration is a pause. more are other words.
func (c *fakeConn) plays(more map[string]func(), steps ...any) {
	does := map[string]func(){
		"asks": c.asks, "answers": c.answers, "acknowledges": c.acknowledges, "half-closes": c.halfClose, "closes": c.closes,
		"is unread":    func() { c.ReadQueue = 1 },
		"is unsent":    func() { c.WriteQueue = 5000 },
		"app closes":   func() { c.State = sockdiag.FinWait1 },
		"owes its FIN": func() { c.WriteQueue = 1 },
	}
	maps.Copy(does, more)
	for _, step := range steps {
		switch step := step.(type) {
		case time.Duration:
			time.Sleep(step)
		case string:
			for word := range strings.SplitSeq(step, ", ") {
				does[word]()
			}
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
