package agent

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// refused reports whether the address refuses connections.
func refused(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

func TestAdminHealthcheckIsTakenBack(t *testing.T) {
	admin, address := withAdmin(t, "")
	r := start(t, nil, admin)
	if keep(t, r.inbound()).ask() {
		t.Error("Connection: close before any request to the admin API")
	}
	postTo(address, "healthcheck/fail")
	if !keep(t, r.inbound()).ask() {
		t.Error("no Connection: close after /healthcheck/fail")
	}
	postTo(address, "healthcheck/ok")
	client := keep(t, r.inbound())
	for range 3 {
		if client.ask() {
			t.Error("Connection: close after /healthcheck/ok")
		}
	}

	// Once the agent drains by itself, the admin API cannot undo that.
	answer := r.inFlight("/slow")
	postTo(address, "healthcheck/fail")
	r.signals <- drain.Terminate
	r.logged(`"phase":"waiting"`)
	postTo(address, "healthcheck/ok")
	if !keep(t, r.inbound()).ask() {
		t.Error("no Connection: close during the termination after /healthcheck/ok")
	}
	close(r.free)
	<-answer
	r.wantEnd(CodeIntended)
}

// A hook's drain that is cancelled also undoes what the admin API
// has requested: else the pod would stay drained forever.
func TestAdminForgetsWithTheHook(t *testing.T) {
	t.Parallel() // it waits for a deadline
	admin, address := withAdmin(t, "")
	r := start(t, []string{"TERMINATION_GRACE_PERIOD_SECONDS=1", "LASTCALL_LAST_CALL_MARGIN=500ms"}, admin)
	postTo(address, "healthcheck/fail")
	postTo(address, "drain_listeners")
	if !refused(r.inbound()) {
		t.Error("it still accepts after /drain_listeners")
	}
	r.post("/wait")
	r.until("resumed", func() bool {
		body, err := getFrom(address, "/ready")
		return err == nil && body == "LIVE\n"
	})
	if keep(t, r.inbound()).ask() {
		t.Error("Connection: close after the drain was cancelled")
	}
}

func TestAdminQuit(t *testing.T) {
	admin, address := withAdmin(t, "")
	r := start(t, nil, admin)
	answer := r.inFlight("/never")
	if status, body := postTo(address, "quitquitquit"); status != http.StatusOK || body != "OK\n" {
		t.Errorf("%d %q", status, body)
	}
	r.wantEnd(CodeIntended)
	<-answer
	if got := r.report(); got.Verdict != "quit" {
		t.Errorf("report %+v", got)
	}
}

func TestAdminAddressThatSomebodyHas(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer ln.Close()
	r := start(t, nil, func(o *Options) { o.Admin = Admin{Address: ln.Addr().String(), Optional: true} })
	if !strings.Contains(r.log.String(), "cannot serve Envoy's admin API") {
		t.Errorf("no log line:\n%s", r.log)
	}
	r.terminates()
}

// A signal is not lost when its sender disconnects before the drain takes it:
// /quitquitquit is answered first, and curl disconnects at once.
func TestSignalThoughTheSenderHasGone(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 {
		a := &agent{drainSignals: make(chan drain.Signal, 1)}
		a.signal(gone, drain.QuitNow)
		if len(a.drainSignals) != 1 {
			t.Fatal("the signal was lost")
		}
		a.signal(gone, drain.QuitNow) // the buffer is full: returns
	}
}
