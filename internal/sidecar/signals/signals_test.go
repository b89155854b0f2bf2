package signals

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// TestDefaults: a program that is started with ignored signals ignores them, and so do its children.
func TestDefaults(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			t.Errorf("%v is ignored here, as under nohup and in background jobs: use make test, which restores it", sig)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"SIGTERM": syscall.SIGTERM, "usr1": syscall.SIGUSR1, " WINCH ": syscall.SIGWINCH, "10": syscall.SIGUSR1,
		"SIGRTMIN": 34, "rtmin+3": 37, "RTMIN+30": 64,
		"": 0, "SIG": 0, "TERMINATE": 0, "0": 0, "65": 0, "RTMIN+31": 0, "RTMIN+x": 0,
		"KILL": 0, "STOP": 0, "URG": 0, "CHLD": 0, "PIPE": 0,
	} {
		got, err := Parse(text)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v; want %d", text, got, err, int(want))
		}
	}
	for sig, want := range map[syscall.Signal]string{syscall.SIGQUIT: "SIGQUIT", 34: "SIGRTMIN+0", 37: "SIGRTMIN+3", 33: "signal 33"} {
		if got := Name(sig); got != want {
			t.Errorf("signal %d is %q, want %q", int(sig), got, want)
		}
	}
}

func TestReceive(t *testing.T) {
	requests := new(drain.Requests)
	r, end := Receive(Options{Stop: []syscall.Signal{syscall.SIGWINCH}, Reload: []syscall.Signal{syscall.SIGUSR1},
		Requests: requests})
	defer end()
	if r.First() != 0 {
		t.Errorf("first signal %v before any", r.First())
	}
	send := func(sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
	}
	late := time.After(10 * time.Second)
	send(syscall.SIGUSR1)
	select {
	case <-r.Reload:
	case <-late:
		t.Fatal("no request for a reload")
	}
	_, changed := requests.Look()
	send(syscall.SIGWINCH)
	select {
	case <-changed:
		if now, _ := requests.Look(); now.First != drain.Terminate || now.Terminated.IsZero() {
			t.Errorf("SIGWINCH is %v", now)
		}
	case <-late:
		t.Fatal("SIGWINCH was not delivered")
	}
	first := time.Now()
	polltest.Eventually(t, "SIGINT counts when it no longer repeats the first", func() bool {
		send(syscall.SIGINT)
		now, _ := requests.Look()
		if now.Again.IsZero() {
			return false
		}
		if now.Interrupts == 0 || now.Again.Sub(first) < 900*time.Millisecond {
			t.Errorf("%v after %v", now, now.Again.Sub(first))
		}
		return true
	})
	if r.First() != syscall.SIGWINCH {
		t.Errorf("first signal %v, want SIGWINCH", r.First())
	}
}
