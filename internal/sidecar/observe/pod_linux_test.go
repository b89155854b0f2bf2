package observe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// A watch on standby knows the ends and refusals between the close of the listener and Begin, and the time of the close.
func TestStandby(t *testing.T) {
	n := nettest.New(t)
	ln := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80))
	own := n.Client.IPv4
	w := watched(t, n.Pod.Path(), Options{Local: func(a netip.Addr) bool { return a != own }}, (*Watch).Standby)
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
	if err := w.Begin(at, "listener closed"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	got := w.End(time.Now(), Exit{})
	if want := (Lost{Unanswered: 1, Refused: 3}); got.Lost != want || got.Open+got.Arrivals.Count != 4 || got.Overruns > 0 { // the first is a tick of the kernel's clock old
		t.Errorf("%+v: %s", got, got.Text())
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
			w := watched(t, n.Pod.Path(), Options{}, (*Watch).Start)
			to := map[string]string{"tcp4": n.Pod.TCP4(port), "tcp6": n.Pod.TCP6(port)}
			// exchange connects, sends a request, and answers it or not.
			exchange := func(from *nettest.Namespace, family string, answer bool) (server net.Conn) {
				t.Helper()
				client, err := from.Dial(context.Background(), family, to[family])
				if err == nil {
					server, err = listener.Accept()
				}
				if err != nil {
					t.Fatal(err)
				}
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
				}{{n.Client, true}, {n.Client, false}, {n.Client, false}, {n.Pod, false}} { // the last one is a sidecar's
					servers = append(servers, exchange(one.from, family, one.answer))
				}
			}
			awaitBusy(t, w, 2*len(tt.families))
			if err := w.Begin(time.Now(), "test"); err != nil {
				t.Fatal(err)
			}
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
			if want := (Lost{Unanswered: 2 * k, Refused: 3 * k}); got.Lost != want || got.Open != 3*k || got.Busy != 2*k || got.Arrivals.Count != 4*k {
				t.Errorf("%+v, want %+v: %s", got.Lost, want, got.Text())
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
