package observe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// In a pod's namespace, a sidecar's connection to its app does not count; a refused client does.
func TestPod(t *testing.T) {
	n := nettest.New(t)
	front, back := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80)), n.Pod.Listen(t, "tcp", n.Pod.TCP4(8080))
	w := watched(t, n.Pod.Path(), Options{}, begun)
	exchange := func(from *nettest.Namespace, to net.Listener) {
		t.Helper()
		c, err := from.Dial(context.Background(), "tcp", to.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := to.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "request")
		_, _ = io.ReadFull(s, make([]byte, 7))
		_, _ = s.Close(), c.Close()
	}
	exchange(n.Client, front) // unanswered
	exchange(n.Pod, back)     // the sidecar's
	_, _ = front.Close(), back.Close()
	polltest.Eventually(t, "the listeners have closed", func() bool { return len(w.Listening()) == 0 })
	for range 3 {
		if c, err := n.Client.Dial(context.Background(), "tcp", n.Pod.TCP4(80)); err == nil {
			_ = c.Close()
			t.Fatal("connected")
		}
	}
	got := w.End(time.Now(), Exit{})
	if want := (Lost{Unanswered: 1, Refused: 3}); got.Lost != want || got.Open+got.Arrivals.Count != 4 { // to a tick of the kernel's clock
		t.Errorf("%+v: %s", got.Lost, got.Text())
	}
	if !w.Gone() {
		t.Error("something is left")
	}
}

// A watch on standby knows the ends and refusals between the close of the listener and Begin, and the time of the close.
func TestStandby(t *testing.T) {
	n := nettest.New(t)
	ln := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80))
	own := n.Client.IPv4
	w := watched(t, n.Pod.Path(), Options{Local: func(a netip.Addr) bool { return a != own }}, (*Watch).Standby)
	dial := func() net.Conn {
		t.Helper()
		c, err := n.Client.Dial(context.Background(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "request")
		return c
	}
	for range 300 { // before the termination: no part of it
		c := dial()
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(s, make([]byte, 7))
		_, _ = io.WriteString(s, "answer")
		_, _ = io.ReadFull(c, make([]byte, 6))
		_, _ = c.Close(), s.Close()
	}
	early := time.Now()
	c := dial()
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(s, make([]byte, 7))
	before := time.Now()
	_, _ = ln.Close(), s.Close()
	at := awaitReaction(t, w, early)
	if at.Before(before) || at.After(time.Now()) {
		t.Errorf("the listener closed between %v and %v, not at %v", before, time.Now(), at)
	}
	for range 3 {
		if c, err := n.Client.Dial(context.Background(), "tcp", n.Pod.TCP4(80)); err == nil {
			_ = c.Close()
			t.Fatal("connected")
		}
	}
	if err := w.Begin(at, "listener closed"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	got := w.End(time.Now(), Exit{})
	if want := (Lost{Unanswered: 1, Refused: 3}); got.Lost != want || got.Open+got.Arrivals.Count != 4 || got.Overruns > 0 { // the first is a tick of the kernel's clock old
		t.Errorf("%+v: %s", got, got.Text())
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
			dial := func(from *nettest.Namespace, family string) (net.Conn, error) {
				to := n.Pod.TCP4(port)
				if family == "tcp6" {
					to = n.Pod.TCP6(port)
				}
				return from.Dial(context.Background(), family, to)
			}
			// exchange connects, sends a request, and answers it or not.
			exchange := func(from *nettest.Namespace, family string, answer bool) (client, server net.Conn) {
				t.Helper()
				client, err := dial(from, family)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close() })
				if server, err = listener.Accept(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = server.Close() })
				_, _ = io.WriteString(client, "request")
				_, _ = io.ReadFull(server, make([]byte, 7))
				if answer {
					_, _ = io.WriteString(server, "answer")
					_, _ = io.ReadFull(client, make([]byte, 6))
				}
				return client, server
			}
			var servers []net.Conn
			for _, family := range tt.families {
				for _, one := range []struct {
					from   *nettest.Namespace
					answer bool
				}{{n.Client, true}, {n.Client, false}, {n.Client, false}, {n.Pod, false}} { // the last one is a sidecar's
					_, server := exchange(one.from, family, one.answer)
					servers = append(servers, server)
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
				for range 3 {
					if c, err := dial(n.Client, family); !errors.Is(err, syscall.ECONNREFUSED) {
						t.Fatalf("connected: %v, %v", c, err)
					}
				}
			}
			got := w.End(time.Now(), Exit{})
			k := len(tt.families)
			if want := (Lost{Unanswered: 2 * k, Refused: 3 * k}); got.Lost != want || got.Open != 3*k || got.Busy != 2*k || got.Arrivals.Count != 4*k {
				t.Errorf("%+v, want %+v: %s", got.Lost, want, got.Text())
			}
		})
	}
}
