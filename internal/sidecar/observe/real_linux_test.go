package observe

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// watched is a watch of a network namespace.
func watched(t *testing.T, namespace string, o Options) *Watch {
	t.Helper()
	w, err := Open(namespace, o)
	must.Do(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// begun begins at once.
func begun(w *Watch) error { return w.Begin(time.Now(), "test") }

// observed starts a watch of an app that has begun.
func observed(t *testing.T, a *program) *Watch {
	t.Helper()
	w := watched(t, "", Options{Process: a.cmd.Process.Pid, LooksEarly: true})
	if len(w.Listening()) != 1 {
		t.Fatalf("listening: %v", w.Listening())
	}
	return w
}

// awaitBusy waits until the table shows n connections with a request in flight.
func awaitBusy(t *testing.T, w *Watch, n int) {
	t.Helper()
	polltest.NoError(t, func() error {
		w.mu.Lock()
		_ = w.lookLocked()
		w.mu.Unlock()
		if got := w.Peek().Unclear.Unfinished; got != n {
			return fmt.Errorf("%d busy connections; want %d", got, n)
		}
		return nil
	})
}

// endings are ways in which real servers end.
var endings = []struct {
	kind       string
	signal     syscall.Signal
	idle, busy int
	notLate    string // why the row needs a watch that has begun before
}{
	{"go", syscall.SIGKILL, 3, 2, ""},
	{"go", syscall.SIGTERM, 0, 3, ""}, // without a handler: it ends at once
	{"go", syscall.SIGKILL, 5, 0, ""},
	{"go", syscall.SIGKILL, 500, 500, "so many waits for the kernel's clock would take 20 s"},
	{"go6", syscall.SIGKILL, 2, 2, ""},
	{"deaf", syscall.SIGKILL, 0, 4, // all in the accept queue
		"startApp's connection is in the queue, too: only a look shows that its client has closed it"},
	{"python", syscall.SIGKILL, 3, 2, ""},
	{"python", syscall.SIGTERM, 2, 0, ""},
	{"gunicorn", syscall.SIGKILL, 3, 2, ""},
	{"gunicorn", syscall.SIGTERM, 3, 2, ""},
	{"nginx", syscall.SIGKILL, 3, 2, ""},
	{"nginx", syscall.SIGTERM, 3, 2, ""},
	{"nginx", syscall.SIGTERM, 4, 0, ""},
}

// The numbers are those that the clients count themselves, also when the news of the end come after it.
func TestLosses(t *testing.T) {
	for _, tt := range endings {
		for _, late := range []bool{false, true} {
			if late && tt.notLate != "" {
				t.Logf("%s, %d idle: not observed late: %s", tt.kind, tt.idle, tt.notLate)
				continue
			}
			name := fmt.Sprintf("%s/%v/%d idle/%d busy/late %v", tt.kind, tt.signal, tt.idle, tt.busy, late)
			t.Run(name, func(t *testing.T) {
				a := startApp(t, tt.kind)
				see := observed(t, a)
				w := see
				if late {
					w = watched(t, "", Options{Process: a.cmd.Process.Pid})
				}
				var clients []*caller
				for i := range tt.idle + tt.busy {
					c := connect(t, a)
					if tt.kind != "deaf" && i%3 > 0 || i < tt.idle { // with and without an earlier answer
						if c.ask(t, "/"); !c.receive() {
							t.Fatal("no answer")
						}
						if late { // without a look, the kernel's clock shows which side was last
							time.Sleep(20 * time.Millisecond)
						}
					}
					if i >= tt.idle {
						c.ask(t, "/slow")
					}
					clients = append(clients, c)
				}
				awaitBusy(t, see, tt.busy)
				begin := time.Now()
				if !late {
					must.Do(t, w.Begin(begin, "test"))
				}
				a.end(tt.signal)
				ended := time.Now()
				if late {
					must.Do(t, w.Begin(awaitReaction(t, w, begin), "test"))
				}
				lost := 0
				for _, c := range clients {
					lost += c.losses()
				}
				got := w.End(ended, Exit{})
				// Late, the beginning is the report of the listener, and connections may have ended before.
				isOpen := late || got.Open >= len(clients) && got.Busy == tt.busy
				if !isOpen || got.Lost.Total() != lost || lost != tt.busy {
					t.Errorf("the clients lost %d of %d:\n%s", lost, len(clients), show(got))
				}
				if want := map[bool]Verdict{true: VerdictClean, false: VerdictLost}[lost == 0]; got.Verdict != want {
					t.Errorf("the verdict is %s, not %s:\n%s", got.Verdict, want, show(got))
				}
			})
		}
	}
}

// awaitReaction waits until the close of the listener has been reported.
func awaitReaction(t *testing.T, w *Watch, since time.Time) (at time.Time) {
	t.Helper()
	polltest.Eventually(t, "a listener has closed", func() bool {
		at = w.Reacted(since)
		return !at.IsZero()
	})
	return at
}

// Clients with answers in the same tick as their requests, killed in mid-stream: the total may miss what no byte shows.
func TestLossesUnderLoad(t *testing.T) {
	a := startApp(t, "go")
	w := observed(t, a)
	const clients = 20
	lost := make(chan int)
	for range clients {
		c := connect(t, a)
		go func() {
			for {
				if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: app\r\n\r\n")); err != nil {
					lost <- 0 // the client knows before it asks
					return
				}
				if c.owed++; !c.receive() {
					lost <- c.owed
					return
				}
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			}
		}()
	}
	time.Sleep(300 * time.Millisecond) // of load
	must.Do(t, begun(w))
	a.end(syscall.SIGKILL)
	ended, sum := time.Now(), 0
	for range clients {
		sum += <-lost
	}
	got := w.End(ended, Exit{})
	t.Logf("the clients lost %d:\n%s", sum, show(got))
	if sum > 0 && got.Verdict == VerdictClean {
		t.Errorf("clean, although the clients lost %d:\n%s", sum, show(got))
	}
	if got.Lost.Total() > sum+1 {
		t.Errorf("%d lost; the clients count %d", got.Lost.Total(), sum)
	}
}

// A client that goes first loses nothing; nor does one whose pipelined requests have all been answered.
func TestClientsThatLeave(t *testing.T) {
	a := startApp(t, "go")
	w := observed(t, a)
	gone, reset, pipelined := connect(t, a), connect(t, a), connect(t, a)
	gone.ask(t, "/slow")
	reset.ask(t, "/slow")
	if pipelined.ask(t, "/", "/", "/"); pipelined.losses() != 0 {
		t.Fatal("no answers")
	}
	awaitBusy(t, w, 2)
	must.Do(t, begun(w))
	_ = reset.Conn.(*net.TCPConn).SetLinger(0)
	_, _ = gone.Close(), reset.Close()
	awaitBusy(t, w, 0)
	a.end(syscall.SIGKILL)
	if got := w.End(time.Now(), Exit{}); got.Lost.Total() != 0 || got.Left != 2 {
		t.Errorf("%s", show(got))
	}
}

// A process that ends while the kernel has no room for reports. Sometimes this process reads them all in time.
func TestOverrun(t *testing.T) {
	for range 20 {
		if got := overrun(t); got.Lost.Total()+got.Unseen > 301 || got.Lost.Total()+got.Unseen < 300 {
			t.Fatal(show(got))
		} else if got.Overruns > 0 {
			return
		}
	}
	t.Error("no overrun")
}

// overrun ends 300 connections of a watch with room for two reports.
func overrun(t *testing.T) Termination {
	a := startApp(t, "go")
	// The kernel makes the buffer 2 kB: two reports.
	w := watched(t, "", Options{Process: a.cmd.Process.Pid, LooksEarly: true, buffer: 1})
	for range 300 {
		connect(t, a).ask(t, "/slow")
	}
	awaitBusy(t, w, 300)
	must.Do(t, begun(w))
	a.end(syscall.SIGKILL)
	return w.End(time.Now(), Exit{})
}

// show is a termination for the log.
func show(t Termination) string {
	text, _ := json.MarshalIndent(t, "", "  ")
	return string(text)
}
