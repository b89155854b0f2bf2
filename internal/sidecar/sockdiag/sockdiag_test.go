package sockdiag

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/bpf"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a connection to a listener of ours.
func pair(t *testing.T, ln net.Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", ln.Addr().String())
	must.Do(t, err)
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

func listen(t *testing.T, address string) (net.Listener, uint16) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln, ln.Addr().(*net.TCPAddr).AddrPort().Port()
}

func table(t *testing.T) *Table {
	t.Helper()
	table, err := OpenTable()
	must.Do(t, err)
	t.Cleanup(func() { _ = table.Close() })
	return table
}

func sockets(t *testing.T, table *Table, states States, ports ...uint16) []Socket {
	t.Helper()
	out, err := table.Sockets(states, ports)
	must.Do(t, err)
	return out
}

func awaitGone(t *testing.T, w *Watch) {
	t.Helper()
	select {
	case <-w.Gone():
	case <-time.After(5 * time.Second):
		t.Fatal("not reported")
	}
}

func TestSockets(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		t.Run(address, func(t *testing.T) {
			if address == "[::1]:0" { // 127.0.0.1 may have another test's connections at the port that the kernel chooses
				address = nettest.FreeAddress(t, "::1")
			}
			table := table(t)
			ln, port := listen(t, address)
			_, other := listen(t, "127.0.0.1:0")
			if got := sockets(t, table, Of(Established, CloseWait), port); len(got) != 0 {
				t.Fatalf("before: %v", got)
			}
			client, server := pair(t, ln)
			got := sockets(t, table, Of(Established, CloseWait), other, port)
			if len(got) != 1 {
				t.Fatalf("%d sockets; want 1: %v", len(got), got)
			}
			s := got[0]
			if s.State != Established || s.Local.Port() != port || s.Remote.String() != client.LocalAddr().String() {
				t.Errorf("%+v; want the server's end of %v", s, client.LocalAddr())
			}
			if _, err := io.WriteString(client, "hello"); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 3)
			if _, err := io.ReadFull(server, b); err != nil {
				t.Fatal(err)
			}
			if again := sockets(t, table, Of(Established, CloseWait), port)[0]; again.Received != 5 || again.ReadQueue != 2 || again.Cookie != s.Cookie {
				t.Errorf("after 5 bytes, 3 of them read: %+v", again)
			}
			_ = client.Close()
			polltest.Eventually(t, "the client's FIN is shown", func() bool {
				got := sockets(t, table, Of(Established, CloseWait), port)
				return len(got) == 1 && got[0].State == CloseWait
			})
			_ = server.Close()
			if got := sockets(t, table, Of(Established, CloseWait), port); len(got) != 0 {
				t.Errorf("after the end: %v", got)
			}
			if got := sockets(t, table, Of(Listen), port); len(got) != 1 {
				t.Errorf("listeners: %v", got)
			}
		})
	}
}

// The filter of many ports is taken by the kernel and finds the right ones.
func TestManyPorts(t *testing.T) {
	table := table(t)
	ln, port := listen(t, "127.0.0.1:0")
	pair(t, ln)
	for _, n := range []int{0, 1, 2, 500, 30_000} {
		var ports []uint16
		for i := range n {
			if p := uint16(1 + 2*i); p != port {
				ports = append(ports, p)
			}
		}
		at := len(ports) / 2
		ports = append(ports[:at:at], append([]uint16{port}, ports[at:]...)...)
		found := 0
		for _, s := range sockets(t, table, Of(Established, CloseWait), ports...) {
			if s.Local.Port() == port {
				found++
			}
		}
		if found != 1 {
			t.Errorf("among %d ports: found %d", len(ports), found)
		}
	}
}

func TestSpans(t *testing.T) {
	for _, tt := range []struct {
		ports []uint16
		most  int
		want  []span
	}{
		{[]uint16{80}, 4, []span{{80, 80}}},
		{[]uint16{80, 81, 82, 443}, 4, []span{{80, 82}, {443, 443}}},
		{[]uint16{80, 80, 81}, 4, []span{{80, 81}}},
		{[]uint16{1, 65535}, 1, []span{{1, 65535}}},
		{[]uint16{1, 10, 12, 100, 103}, 3, []span{{1, 1}, {10, 12}, {100, 103}}}, // the narrowest gaps are bridged
		{[]uint16{1, 3, 5, 7}, 2, []span{{1, 7}}},                                // all alike: fewer than may be
	} {
		if got := spansOf(tt.ports, tt.most); !slices.Equal(got, tt.want) {
			t.Errorf("%v in %d: %v; want %v", tt.ports, tt.most, got, tt.want)
		}
	}
}

func TestWatchDestroyed(t *testing.T) {
	ln, port := listen(t, "127.0.0.1:0")
	last, lastPort := listen(t, "127.0.0.1:0")
	w, err := WatchDestroyed([]uint16{port, lastPort})
	if err != nil {
		t.Skip(err)
	}
	defer w.Close()
	other, _ := listen(t, "127.0.0.1:0")
	for _, first := range []int{0, 1} {
		foreign, alsoForeign := pair(t, other)
		_, _ = foreign.Close(), alsoForeign.Close()
		client, server := pair(t, ln)
		select {
		case <-w.Gone():
			t.Fatal("another socket's end was reported")
		default:
		}
		ends := []net.Conn{client, server}
		_, _ = ends[first].Close(), ends[1-first].Close()
		awaitGone(t, w)
	}
	w.Ended()
	_ = ln.Close() // a listener is not a client
	client, server := pair(t, other)
	_, _ = client.Close(), server.Close()
	client, server = pair(t, last)
	_, _ = client.Close(), server.Close()
	awaitGone(t, w) // reports come in order
	if ended, lost := w.Ended(); len(ended) != 1 || ended[0].Local.Port() != lastPort || lost {
		t.Errorf("reported are %+v; want the end of the last connection alone", ended)
	}
}

// Reports wait for Receive until Follow, but the end of a listener wakes this process at once.
func TestWatchAll(t *testing.T) {
	woken := make(chan struct{}, 1)
	w, err := WatchAll(0, func() { Notify(woken) })
	if err != nil {
		t.Skip(err)
	}
	defer w.Close()
	ends := func(port uint16) (n int) {
		sockets, _ := w.Ended()
		for _, s := range sockets {
			if s.Local.Port() == port {
				n++
			}
		}
		return n
	}
	ln, port := listen(t, "127.0.0.1:0")
	await := func(c <-chan struct{}, take func()) {
		t.Helper()
		for n, end := 0, time.After(5*time.Second); n == 0; n = ends(port) {
			select {
			case <-c:
				take()
			case <-end:
				t.Fatal("not reported")
			}
		}
	}
	seen, err := WatchDestroyed([]uint16{port})
	must.Do(t, err)
	defer seen.Close()
	if client, server := pair(t, ln); ends(port) != 0 {
		t.Error("reported before its end")
	} else {
		_, _ = client.Close(), server.Close()
	}
	awaitGone(t, seen)
	if n := ends(port); n != 0 {
		t.Errorf("%d reports have not waited", n)
	}
	_ = ln.Close()
	await(woken, w.Receive)
}

// Uncollected reports are bounded, and losses are reported.
func TestEndedIsBounded(t *testing.T) {
	w := &Watch{gone: make(chan struct{}, 1), most: maxEnded}
	for i := range uint64(maxEnded + 1) {
		w.add(&Socket{Cookie: i})
	}
	if ended, lost := w.Ended(); len(ended) != maxEnded || !lost {
		t.Errorf("%d sockets, lost %v", len(ended), lost)
	}
}

func TestRoll(t *testing.T) {
	var r Roll
	r.Left(1)
	for i, tt := range []struct {
		cookie uint64
		seen   bool
		want   bool
	}{{1, false, false}, {1, false, true}, {2, true, false}, {3, false, true}} {
		if got := r.Unseen(tt.cookie, tt.seen); got != tt.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	for i := range uint64(2 * maxLeft) {
		r.Left(i)
	}
	if len(r.left) > maxLeft {
		t.Errorf("%d are awaited", len(r.left))
	}
}

// The kernel wakes us for our ports alone.
func TestDestroyedFilter(t *testing.T) {
	vm, err := bpf.NewVM(destroyedFilter([]uint16{80, 81, 443}))
	must.Do(t, err)
	for port, want := range map[uint16]bool{79: false, 80: true, 81: true, 82: false, 443: true, 444: false, 0: false, 65535: false} {
		message := make([]byte, 100)
		binary.BigEndian.PutUint16(message[20:], port)
		if n, err := vm.Run(message); err != nil || n > 0 != want {
			t.Errorf("port %d: %d, %v", port, n, err)
		}
	}
}

// A watch that has ended closes its channel, and its owner polls.
func TestWatchEnds(t *testing.T) {
	w, err := WatchDestroyed([]uint16{1})
	if err != nil {
		t.Skip(err)
	}
	must.Do(t, w.Close())
	if _, open := <-w.Gone(); open {
		t.Error("something was reported")
	}
}
