package sockets

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

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
	if err != nil {
		s.t.Fatal(err)
	}
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

// Each row plays one connection and checks its state afterwards.
func TestReasons(t *testing.T) {
	const none Reason = "none"
	stride := func(s *scene, c *fakeConn) { s.k.acks.inStride[ends{c.Local, c.Remote}] = true }
	for _, tt := range []struct {
		name string
		o    Options
		play func(s *scene, c *fakeConn)
		want Reason
	}{
		{name: "it has just been opened", want: Moved},
		{name: "nothing was ever sent", play: func(*scene, *fakeConn) { time.Sleep(2 * second) }, want: Idle},
		{name: "the first request, in the jiffy of the connection", play: func(_ *scene, c *fakeConn) {
			c.asks()
			time.Sleep(60 * second)
		}, want: Asked},
		{name: "only the server's greeting was sent", play: func(_ *scene, c *fakeConn) {
			c.answers()
			time.Sleep(2 * second)
		}, want: Idle},
		{name: "answered a moment ago", play: func(_ *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			time.Sleep(2*second - fakeJiffy)
		}, want: Moved},
		{name: "answered", play: func(_ *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			time.Sleep(2 * second)
		}, want: Idle},
		{name: "answered and asked again", play: func(_ *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			time.Sleep(fakeJiffy)
			c.asks()
			time.Sleep(60 * second)
		}, want: Asked},

		{name: "answered in a jiffy, with the client's acknowledgement after it", play: func(_ *scene, c *fakeConn) {
			c.asks()
			c.answers()
			time.Sleep(40 * time.Millisecond)
			c.acknowledges()
			time.Sleep(2 * second)
		}, want: Idle},
		{name: "answered in a jiffy, by the kernel's acks", play: func(s *scene, c *fakeConn) {
			c.asks()
			c.answers()
			stride(s, c)
			time.Sleep(hunchTime)
		}, want: Idle},
		{name: "which are not certain: a request in two pieces looks the same", play: func(s *scene, c *fakeConn) {
			c.asks()
			c.answers()
			stride(s, c)
			time.Sleep(hunchTime - fakeJiffy)
		}, want: Doubted},
		{name: "where they are, what is not in stride has not been answered", play: func(s *scene, c *fakeConn) {
			c.asks()
			c.answers()
			s.k.acks.exact = true
			time.Sleep(60 * second)
		}, want: Asked},
		{name: "answered in a jiffy, and nothing shows it", play: func(_ *scene, c *fakeConn) {
			c.asks()
			c.answers()
			time.Sleep(doubtTime - fakeJiffy)
		}, want: Doubted},
		{name: "but not forever", play: func(_ *scene, c *fakeConn) {
			c.asks()
			c.answers()
			time.Sleep(doubtTime)
		}, want: Idle},
		{name: "a keep-alive probe does not make it answered", play: func(_ *scene, c *fakeConn) {
			c.asks()
			c.answers()
			time.Sleep(5 * second)
			c.acknowledges()
		}, want: Doubted},
		{name: "asked again in that jiffy, before our eyes", play: func(s *scene, c *fakeConn) {
			c.asks()
			c.answers()
			s.look(false)
			c.asks()
			s.look(false)
			time.Sleep(60 * second)
		}, want: Asked},
		{name: "answered in that jiffy, before our eyes", play: func(s *scene, c *fakeConn) {
			c.asks()
			s.look(false)
			c.answers()
			s.look(false)
			time.Sleep(2 * second)
		}, want: Idle},

		{name: "an upload that pauses", play: func(s *scene, c *fakeConn) {
			for range 5 {
				c.asks()
				s.look(false)
				time.Sleep(10 * second)
			}
		}, want: Asked},
		{name: "an upload after 100 Continue", play: func(s *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			time.Sleep(second)
			c.asks()
			time.Sleep(60 * second)
		}, want: Asked},
		{name: "the app does not read", play: func(_ *scene, c *fakeConn) {
			c.answers()
			c.ReadQueue = 1
			time.Sleep(60 * second)
		}, want: Unread},
		{name: "the client does not take its answer", play: func(_ *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			c.WriteQueue = 5000
			time.Sleep(60 * second)
		}, want: Unsent},
		{name: "an answer in pieces, with pauses below the idle grace", play: func(s *scene, c *fakeConn) {
			c.asks()
			for range 5 {
				time.Sleep(1900 * time.Millisecond)
				c.answers()
				s.look(false)
			}
			time.Sleep(1900 * time.Millisecond)
		}, want: Moved},
		{name: "limit: an answer with longer pauses", play: func(_ *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			time.Sleep(3 * second)
		}, want: Idle},
		{name: "unless it is configured as opaque", o: Options{Opaque: true}, play: func(_ *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			time.Sleep(60 * second)
		}, want: Opaque},

		{name: "the client has ended after its answer, and the app has not seen it", play: func(s *scene, c *fakeConn) {
			c.asks()
			time.Sleep(second)
			c.answers()
			s.look(false)
			time.Sleep(2 * second)
			c.half()
			c.ReadQueue = 1 // its FIN
		}, want: Idle},
		{name: "the client has ended its part and waits for the answer", play: func(_ *scene, c *fakeConn) {
			c.asks()
			c.half()
			time.Sleep(60 * second)
		}, want: Asked},
		{name: "the client came and went without a word", play: func(_ *scene, c *fakeConn) {
			c.half()
			c.ReadQueue = 1
			time.Sleep(2 * second)
		}, want: Idle},
		{name: "the app has ended, the client has not got everything", play: func(_ *scene, c *fakeConn) {
			c.asks()
			c.answers()
			c.State, c.WriteQueue = sockdiag.FinWait1, 5000
			time.Sleep(60 * second)
		}, want: Unsent},
		{name: "the app has ended, the client has got everything", play: func(_ *scene, c *fakeConn) {
			c.asks()
			c.answers()
			c.State, c.WriteQueue = sockdiag.FinWait1, 1
		}, want: none},
		{name: "a client that does not count", o: Options{IgnoreFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}},
			play: func(_ *scene, c *fakeConn) { c.asks() }, want: none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stage(t, tt.o, func(s *scene) {
				c := s.k.connects()
				if tt.play != nil {
					tt.play(s, c)
				}
				if got := s.reason(); got != tt.want {
					t.Errorf("%q; want %q", got, tt.want)
				}
			})
		})
	}
}

func TestArrivals(t *testing.T) {
	here := netip.MustParsePrefix("10.0.0.0/8")
	for _, tt := range []struct {
		name string
		o    Options
		play func(s *scene)
		want uint64
	}{
		{name: "no client", play: func(*scene) {}},
		{name: "a connection", play: func(s *scene) { s.k.connects() }, want: 1},
		{name: "with its first request", play: func(s *scene) { s.k.connects().asks() }, want: 1},
		{name: "and another request", play: func(s *scene) {
			c := s.k.connects()
			c.asks()
			time.Sleep(second)
			c.answers()
			s.look(false)
			c.asks()
		}, want: 2},
		{name: "a request that came and was answered between two looks", play: func(s *scene) {
			c := s.k.connects()
			s.look(false)
			c.asks()
			c.answers()
		}, want: 2},
		{name: "an upload is one", play: func(s *scene) {
			c := s.k.connects()
			for range 5 {
				c.asks()
				s.look(false)
				time.Sleep(second)
			}
		}, want: 1},
		{name: "an answer in pieces is none", play: func(s *scene) {
			c := s.k.connects()
			c.asks()
			for range 5 {
				s.look(false)
				time.Sleep(second)
				c.answers()
			}
		}, want: 1},
		{name: "those that came and went between two looks: the kernel reports them", play: func(s *scene) {
			s.k.connects().closes()
			s.k.connects().closes()
			s.look(true)
		}, want: 2},
		{name: "more than could be reported", play: func(s *scene) { s.g.destroyed(nil, true) }, want: 1},
		{name: "one that was seen, and its end", play: func(s *scene) {
			c := s.k.connects()
			s.look(false)
			c.closes()
			s.look(true)
		}, want: 1},
		{name: "its end seen before it is reported", play: func(s *scene) {
			c := s.k.connects()
			s.look(false)
			c.closes()
			s.look(false)
			s.look(true)
		}, want: 1},
		{name: "two, and one that came meanwhile", play: func(s *scene) {
			a, b := s.k.connects(), s.k.connects()
			s.look(false)
			a.closes()
			b.closes()
			s.k.connects().closes()
			s.look(true)
		}, want: 3},
		{name: "the app's end and then the kernel's", play: func(s *scene) {
			c := s.k.connects()
			s.look(false)
			c.State = sockdiag.FinWait1
			s.look(false)
			time.Sleep(10 * second)
			c.State = sockdiag.FinWait2
			s.look(false)
			c.closes()
			s.look(true)
		}, want: 1},
		{name: "one that was served between two looks, with its end still on the way", play: func(s *scene) {
			s.k.connects().State = sockdiag.LastAck
			s.look(false)
		}, want: 1},
		{name: "those that do not count", o: Options{IgnoreFrom: []netip.Prefix{here}}, play: func(s *scene) {
			c := s.k.connects()
			c.asks()
			s.look(false)
			c.closes()
			s.k.connects().closes()
			s.look(true)
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
