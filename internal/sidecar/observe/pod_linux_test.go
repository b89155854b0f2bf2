package observe

import (
	"context"
	"io"
	"net"
	"net/netip"
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
