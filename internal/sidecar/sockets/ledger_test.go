package sockets

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const second = time.Second

// scene is a kernel and a ledger that looks at it.
type scene struct {
	t *testing.T
	k *fakeKernel
	g *ledger
}

// look is a look of the plane's. With reported, the kernel has delivered what it has to
// report.
func (s *scene) look(reported bool) {
	s.t.Helper()
	if reported {
		s.g.destroyed(s.k.report(), false)
	}
	all, err := s.k.Sockets(states, nil)
	must.Do(s.t, err)
	s.g.look(all, time.Now())
	for _, c := range s.g.doubts(time.Now()) {
		c.weighed, c.turn = true, s.k.acks.turn(ends{c.local, c.remote})
	}
	all, _ = s.k.Sockets(states, nil)
	s.g.look(all, time.Now())
}

// reason is why the only connection is busy.
func (s *scene) reason() Reason {
	s.t.Helper()
	s.look(false)
	for _, c := range s.g.seen {
		return c.reason
	}
	return "none"
}

func stage(t *testing.T, o Options, f func(s *scene)) {
	synctest.Test(t, func(t *testing.T) {
		if o.IdleGrace == 0 {
			o.IdleGrace = 2 * second
		}
		f(&scene{t, &fakeKernel{acks: acks{inStride: map[ends]bool{}}}, newLedger(o)})
	})
}

// steps play a connection, with what the ledger looks at and the kernel's acks.
func (s *scene) steps(c *fakeConn, steps ...any) {
	c.plays(map[string]func(){
		"is in stride": func() { s.k.acks.inStride[ends{c.Local, c.Remote}] = true },
		"is seen":      func() { s.look(false) },
		"is reported":  func() { s.look(true) },
	}, steps...)
}

// Each row plays one connection and checks its state afterwards.
func TestReasons(t *testing.T) {
	const none Reason = "none"
	const long = 60 * second
	for _, tt := range []struct {
		name  string
		want  Reason
		steps []any
	}{
		{"it has just been opened", Moved, nil},
		{"nothing was ever sent", Idle, []any{2 * second}},
		{"the first request, in the jiffy of the connection", ClientLast, []any{"asks", long}},
		{"only the server's greeting was sent", Idle, []any{"answers", 2 * second}},
		{"answered a moment ago", Moved, []any{"asks", second, "answers", 2*second - fakeJiffy}},
		{"answered", Idle, []any{"asks", second, "answers", 2 * second}},
		{"answered and asked again", ClientLast, []any{"asks", second, "answers", fakeJiffy, "asks", long}},

		{"answered in a jiffy, with the client's acknowledgement after it", Idle,
			[]any{"asks, answers", 40 * time.Millisecond, "acknowledges", 2 * second}},
		{"answered in a jiffy, by the kernel's acks", Idle, []any{"asks, answers, is in stride", hunchTime}},
		{"which are not certain: a request in two pieces looks the same", Doubted,
			[]any{"asks, answers, is in stride", hunchTime - fakeJiffy}},
		{"answered in a jiffy, and nothing shows it", Doubted, []any{"asks, answers", doubtTime - fakeJiffy}},
		{"but not forever", Idle, []any{"asks, answers", doubtTime}},
		{"a keep-alive probe does not make it answered", Doubted, []any{"asks, answers", 5 * second, "acknowledges"}},
		{"asked again in that jiffy, before our eyes", ClientLast, []any{"asks, answers, is seen, asks, is seen", long}},
		{"answered in that jiffy, before our eyes", Idle, []any{"asks, is seen, answers, is seen", 2 * second}},

		{"an upload that pauses", ClientLast, slices.Repeat([]any{"asks, is seen", 10 * second}, 5)},
		{"an upload after 100 Continue", ClientLast, []any{"asks", second, "answers", second, "asks", long}},
		{"the app does not read", Unread, []any{"answers, is unread", long}},
		{"the client does not take its answer", Unsent, []any{"asks", second, "answers, is unsent", long}},
		{"an answer in pieces, with pauses below the idle grace", Moved,
			append(append([]any{"asks"}, slices.Repeat([]any{1900 * time.Millisecond, "answers, is seen"}, 5)...), 1900*time.Millisecond)},
		{"limit: an answer with longer pauses", Idle, []any{"asks", second, "answers", 3 * second}},

		{"the client has ended after its answer, and the app has not seen it", Idle,
			[]any{"asks", second, "answers, is seen", 2 * second, "half-closes, is unread"}}, // its FIN
		{"the client has ended after its answer, and the kernel counts its FIN before the state", Idle, []any{"asks",
			second, "answers, is seen", 2 * second, "its FIN is counted before the state shows it"}},
		{"the client has ended its part and waits for the answer", ClientLast, []any{"asks, half-closes", long}},
		{"the client came and went without a word", Idle, []any{"half-closes, is unread", 2 * second}},
		{"the app has ended, the client has not got everything", Unsent, []any{"asks, answers, app closes, is unsent", long}},
		{"the app has ended, the client has got everything", none, []any{"asks, answers, app closes, owes its FIN"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stage(t, Options{}, func(s *scene) {
				s.steps(s.k.connects(), tt.steps...)
				if got := s.reason(); got != tt.want {
					t.Errorf("%q; want %q", got, tt.want)
				}
			})
		})
	}
}

// What a connection is depends on the options and the kernel, too.
func TestReasonsByOptions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		o     Options
		exact bool // the kernel's acks
		want  Reason
	}{
		{name: "answered", want: Idle},
		{name: "opaque", o: Options{Opaque: true}, want: Opaque},
		{name: "a client that does not count", o: Options{IgnoreFrom: []netip.Prefix{mustPrefix("10.0.0.2/32")}}, want: "none"},
		{name: "with exact acks, what is not in stride has not been answered", exact: true, want: ClientLast},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stage(t, tt.o, func(s *scene) {
				s.k.acks.exact = tt.exact
				s.steps(s.k.connects(), "asks, answers", 60*second)
				if got := s.reason(); got != tt.want {
					t.Errorf("%q; want %q", got, tt.want)
				}
			})
		})
	}
}

func TestArrivals(t *testing.T) {
	here := mustPrefix("10.0.0.0/8")
	// one is a connection with its steps.
	one := func(steps ...any) func(*scene) {
		return func(s *scene) { s.steps(s.k.connects(), steps...) }
	}
	for _, tt := range []struct {
		name string
		want uint64
		play func(s *scene)
		o    Options
	}{
		{name: "no client", play: func(*scene) {}},
		{name: "a connection", want: 1, play: one()},
		{name: "with its first request", want: 1, play: one("asks")},
		{name: "and another request", want: 2, play: one("asks", second, "answers, is seen, asks")},
		{name: "a request that came and was answered between two looks", want: 2, play: one("is seen, asks, answers")},
		{name: "an upload is one", want: 1, play: one(slices.Repeat([]any{"asks, is seen", second}, 5)...)},
		{name: "an answer in pieces is none", want: 1, play: one(append([]any{"asks"}, slices.Repeat([]any{"is seen", second, "answers"}, 5)...)...)},
		{name: "those that came and went between two looks: the kernel reports them", want: 2, play: func(s *scene) {
			s.k.connects().closes()
			s.k.connects().closes()
			s.look(true)
		}},
		{name: "more than could be reported", want: 1, play: func(s *scene) { s.g.destroyed(nil, true) }},
		{name: "one that was seen, and its end", want: 1, play: one("is seen, closes, is reported")},
		{name: "its end seen before it is reported", want: 1, play: one("is seen, closes, is seen, is reported")},
		{name: "two, and one that came meanwhile", want: 3, play: func(s *scene) {
			a, b := s.k.connects(), s.k.connects()
			s.look(false)
			a.closes()
			b.closes()
			s.k.connects().closes()
			s.look(true)
		}},
		{name: "the app's end and then the kernel's", want: 1, play: func(s *scene) {
			c := s.k.connects()
			s.steps(c, "is seen, app closes, is seen", 10*second)
			c.State = sockdiag.FinWait2
			s.steps(c, "is seen, closes, is reported")
		}},
		{name: "one that was served between two looks, with its end still on the way", want: 1, play: func(s *scene) {
			s.k.connects().State = sockdiag.LastAck
			s.look(false)
		}},
		{name: "those that do not count", o: Options{IgnoreFrom: []netip.Prefix{here}}, play: func(s *scene) {
			one("asks, is seen, closes")(s)
			one("closes, is reported")(s)
		}},
		{name: "nor those who come too late", play: func(s *scene) {
			s.g.closed = true
			s.k.connects()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stage(t, tt.o, func(s *scene) {
				s.g.since, s.g.reports = time.Now(), true
				s.look(false)
				tt.play(s)
				s.look(false)
				if got := s.g.activity().Arrivals; got != tt.want {
					t.Errorf("%d; want %d", got, tt.want)
				}
			})
		})
	}
}

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
		"its FIN is counted before the state shows it": func() { c.Received, c.ReadQueue = c.Received+1, 1 },
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
