package observe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Clients that send something after the app's close, as TLS does, are not refused, whether its report has come or not;
// nor are those that close, nor the app's servers.
func TestHalfClosed(t *testing.T) {
	const clients, late = 8, 3
	for _, tt := range []struct {
		name              string
		late, open, sends bool // Begin is late; the listener stays; the peers send
		out               bool // the app has connected to them
		busy              int  // connections that the app closes without an answer
		want              Lost
		crossed           int
	}{
		{"they close", false, false, false, false, 0, Lost{Refused: late}, 0},
		{"they send", false, false, true, false, 0, Lost{Refused: late}, clients},
		{"they send, some without an answer", false, false, true, false, 2, Lost{Refused: late, Unanswered: 2},
			clients - 2},
		{"they close, the news is late", true, false, false, false, 0, Lost{Refused: late}, 0},
		{"they send, the news is late", true, false, true, false, 0, Lost{Refused: late}, clients},
		{"they close, the listener stays", false, true, false, false, 0, Lost{}, 0},
		{"the app's servers send", false, false, true, true, 0, Lost{Refused: late}, 0},
		{"the app's servers close", false, false, false, true, 0, Lost{Refused: late}, 0},
		{"they send, the listener stays", false, true, true, false, 0, Lost{}, clients},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := nettest.New(t)
			ln := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80))
			w := watched(t, n.Pod.Path(), Options{})
			var theirs, ours []net.Conn
			known := clients
			outer := n.Client.Listen(t, "tcp", n.Client.TCP4(80))
			for i := range clients {
				from, to := n.Client, ln
				if tt.out {
					from, to, known = n.Pod, outer, 0
				}
				c, s := join(t, from, netip.Addr{}, to)
				if tt.out {
					c, s = s, c
				}
				pass(t, c, s, "request")
				pass(t, s, c, "answer")
				if i < tt.busy {
					time.Sleep(tick)
					pass(t, c, s, "request")
				}
				theirs, ours = append(theirs, c), append(ours, s)
			}
			time.Sleep(tick)
			at := time.Now()
			begin := func() {
				must.Do(t, w.Begin(at, "test"))
				time.Sleep(tick)
			}
			if !tt.late {
				begin()
			}
			if !tt.open {
				_ = ln.Close()
			}
			for _, s := range ours {
				_ = s.Close()
			}
			await(t, w, func() bool { return len(w.ledger.halfClosed) == clients || len(w.ended) == clients+1 })
			for _, c := range theirs {
				_, err := io.ReadAll(c)
				must.Do(t, err)
				if tt.sends {
					_, _ = io.WriteString(c, "bye")
				}
				_ = c.Close()
			}
			if tt.late {
				begin()
			}
			isOpen := func(h halfClosed) bool { return h.gone.IsZero() }
			await(t, w, func() bool { return !slices.ContainsFunc(w.ledger.halfClosed, isOpen) && len(w.ended) == 0 })
			refused(t, n, "tcp4", n.Pod.TCP4(80), tt.want.Refused)
			got := w.End(time.Now(), Exit{})
			if got.Lost != tt.want || got.Unclear.Crossed != tt.crossed ||
				got.Open+got.Arrivals.Count != known+tt.want.Refused { // to a tick of the kernel's clock
				t.Errorf("%+v", got)
			}
		})
	}
}

// await waits until the watch is as wanted.
func await(t *testing.T, w *Watch, isSo func() bool) {
	t.Helper()
	polltest.Eventually(t, "the watch is as wanted", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return isSo()
	})
}

func TestStill(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, tt := range map[string]struct {
		c    *connection
		more func(*ledger)
		want bool
	}{
		"idle":              {&connection{turn: app, settled: true}, nil, true},
		"in flight":         {&connection{turn: client, settled: true}, nil, false},
		"unread":            {&connection{turn: app, settled: true, Socket: sockdiag.Socket{ReadQueue: 1}}, nil, false},
		"turn in doubt":     {&connection{turn: unclear, Socket: sockdiag.Socket{Sent: 1}}, nil, false},
		"end not reported":  {&connection{turn: app, settled: true, missed: 1}, nil, false},
		"no listener yet":   {nil, func(g *ledger) { g.ports = nil }, false},
		"a closed listener": {nil, func(g *ledger) { g.listening = nil }, false},
		"an overrun":        {nil, func(g *ledger) { g.result.Overruns = 1 }, false},
	} {
		g := newLedger(Options{})
		g.ports[8080], g.listening, g.looked = true, []uint16{8080}, now
		if tt.c != nil {
			g.open[1] = tt.c
		}
		if tt.more != nil {
			tt.more(g)
		}
		if got := g.still(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A watch on standby knows the ends and refusals between the close of the listener and Begin, and the time of the
// close.
func TestStandby(t *testing.T) {
	n := nettest.New(t)
	ln := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80))
	own := n.Client.IPv4
	w := watched(t, n.Pod.Path(), Options{Local: func(a netip.Addr) bool { return a != own }})
	for range 300 { // before the termination: no part of it
		c, s := join(t, n.Client, netip.Addr{}, ln)
		pass(t, c, s, "request")
		pass(t, s, c, "answer")
		_, _ = c.Close(), s.Close()
	}
	early := time.Now()
	c, s := join(t, n.Client, netip.Addr{}, ln)
	pass(t, c, s, "request")
	before := time.Now()
	_, _ = ln.Close(), s.Close()
	at := awaitReaction(t, w, early)
	if at.Before(before) || at.After(time.Now()) {
		t.Errorf("the listener closed between %v and %v, not at %v", before, time.Now(), at)
	}
	refused(t, n, "tcp4", n.Pod.TCP4(80), 3)
	must.Do(t, w.Begin(at, "listener closed"))
	_ = c.Close()
	got := w.End(time.Now(), Exit{})
	if want := (Lost{Unanswered: 1, Refused: 3}); got.Lost != want || got.Open+got.Arrivals.Count != 4 ||
		got.Overruns > 0 { // the first is a tick of the kernel's clock old
		t.Errorf("%+v: %s", got, show(got))
	}
	if !w.Gone() {
		t.Error("something is left")
	}
	if w.Reacted(time.Now()) != (time.Time{}) {
		t.Error("a reaction before its cause")
	}
}

// In a dual-stack pod, clients by IPv4 and by IPv6 are judged alike, on listeners of either family and on one of both,
// where IPv4 addresses are mapped to IPv6 ones.
func TestDualStack(t *testing.T) {
	const port = 8080
	for _, tt := range []struct {
		listener string
		network  string
		families []string // of the clients
	}{
		{"IPv4", "tcp4", []string{"tcp4"}},
		{"IPv6", "tcp6", []string{"tcp6"}},
		{"both", "tcp", []string{"tcp4", "tcp6"}},
	} {
		t.Run(tt.listener, func(t *testing.T) {
			n := nettest.New(t)
			listener := n.Pod.Listen(t, tt.network, net.JoinHostPort("", strconv.Itoa(port)))
			w := watched(t, n.Pod.Path(), Options{})
			to := map[string]string{"tcp4": n.Pod.TCP4(port), "tcp6": n.Pod.TCP6(port)}
			// exchange connects, sends a request, and answers it or not.
			exchange := func(from *nettest.Namespace, family string, answer bool) (server net.Conn) {
				t.Helper()
				client, err := from.Dial(context.Background(), family, to[family])
				if err == nil {
					server, err = listener.Accept()
				}
				must.Do(t, err)
				t.Cleanup(func() { _, _ = client.Close(), server.Close() })
				if pass(t, client, server, "request"); answer {
					pass(t, server, client, "answer")
				}
				return server
			}
			var servers []net.Conn
			for _, family := range tt.families {
				for _, one := range []struct {
					from   *nettest.Namespace
					answer bool
				}{{n.Client, true}, {n.Client, false}, {n.Client, false},
					{n.Pod, false}} { // the last one is a sidecar's
					servers = append(servers, exchange(one.from, family, one.answer))
				}
			}
			awaitBusy(t, w, 2*len(tt.families))
			must.Do(t, begun(w))
			for _, family := range tt.families {
				exchange(n.Client, family, true) // an arrival
			}
			_ = listener.Close()
			polltest.Eventually(t, "the listener has closed", func() bool { return len(w.Listening()) == 0 })
			for _, s := range servers {
				_ = s.Close()
			}
			for _, family := range tt.families {
				refused(t, n, family, to[family], 3)
			}
			got := w.End(time.Now(), Exit{})
			k := len(tt.families)
			if want := (Lost{Unanswered: 2 * k, Refused: 3 * k}); got.Lost != want || got.Open != 3*k ||
				got.Busy != 2*k || got.Arrivals.Count != 4*k {
				t.Errorf("%+v, want %+v: %s", got.Lost, want, show(got))
			}
		})
	}
}

// refused has so many clients that nothing answers.
func refused(t *testing.T, n *nettest.Net, network, address string, clients int) {
	t.Helper()
	for range clients {
		if c, err := n.Client.Dial(context.Background(), network, address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connected: %v, %v", c, err)
		}
	}
}
