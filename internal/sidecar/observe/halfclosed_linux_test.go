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

// Clients that send something after the app's close, as TLS does, are not refused, whether its report has come or not;
// nor are those that close, nor the app's servers.
func TestHalfClosed(t *testing.T) {
	const clients, refused = 8, 3
	for _, tt := range []struct {
		name              string
		late, open, sends bool // Begin is late; the listener stays; the peers send
		out               bool // the app has connected to them
		busy              int  // connections that the app closes without an answer
		want              Lost
		crossed           int
	}{
		{"they close", false, false, false, false, 0, Lost{Refused: refused}, 0},
		{"they send", false, false, true, false, 0, Lost{Refused: refused}, clients},
		{"they send, some without an answer", false, false, true, false, 2, Lost{Refused: refused, Unanswered: 2}, clients - 2},
		{"they close, the news is late", true, false, false, false, 0, Lost{Refused: refused}, 0},
		{"they send, the news is late", true, false, true, false, 0, Lost{Refused: refused}, clients},
		{"they close, the listener stays", false, true, false, false, 0, Lost{}, 0},
		{"the app's servers send", false, false, true, true, 0, Lost{Refused: refused}, 0},
		{"the app's servers close", false, false, false, true, 0, Lost{Refused: refused}, 0},
		{"they send, the listener stays", false, true, true, false, 0, Lost{}, clients},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := nettest.New(t)
			ln := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80))
			w := watched(t, n.Pod.Path(), Options{}, (*Watch).Standby)
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
				if err := w.Begin(at, "test"); err != nil {
					t.Fatal(err)
				}
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
			await(t, w, func() bool { return len(w.ledger.halfClosed) == clients || len(w.buffered.sockets) == clients+1 })
			for _, c := range theirs {
				if _, err := io.ReadAll(c); err != nil {
					t.Fatal(err)
				}
				if tt.sends {
					_, _ = io.WriteString(c, "bye")
				}
				_ = c.Close()
			}
			if tt.late {
				begin()
			}
			await(t, w, func() bool { return len(w.ledger.halfClosed) == 0 && len(w.buffered.sockets) == 0 })
			for range tt.want.Refused {
				if c, err := n.Client.Dial(context.Background(), "tcp", n.Pod.TCP4(80)); err == nil {
					_ = c.Close()
					t.Fatal("connected")
				}
			}
			got := w.End(time.Now(), Exit{})
			if got.Lost != tt.want || got.Maybe.Crossed != tt.crossed || got.Open+got.Arrivals.Count != known+tt.want.Refused { // to a tick of the kernel's clock
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestSentinels: the kernel reports the sentinel of each processor.
func TestSentinels(t *testing.T) {
	w := watched(t, nettest.New(t).Pod.Path(), Options{}, begun)
	if got := w.End(time.Now(), Exit{}); got.Overruns > 0 || len(w.ledger.sentinels) > 0 {
		t.Errorf("%d marks are missing: %+v", len(w.ledger.sentinels), got)
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
