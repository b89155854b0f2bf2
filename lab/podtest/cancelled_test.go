package podtest

import (
	"net/http"
	"testing"
	"time"
)

// A container that is merely restarted runs its preStop, too. No SIGTERM of ours follows: the drain is cancelled 5 s
// after the grace period, and all is as before it.
func TestDrainIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.startSidecar([]string{"LASTCALL_HOOK_TOKEN=" + token, "TERMINATION_GRACE_PERIOD_SECONDS=1"})
	ready := func(when string) {
		t.Helper()
		if code, _, err := p.get(p.Pod.TCP4(15020), "/healthz/ready"); err != nil || code != http.StatusOK {
			t.Errorf("readiness %s: %d, %v", when, code, err)
		}
	}
	a := p.app(lastWords{})
	began := time.Now()
	if err := getWait(p).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready("in the drain")
	_ = a.Terminate() // the kubelet restarts this container alone
	if err := a.wait(t); err != nil {
		t.Errorf("the app's exit: %v", err)
	}
	p.app(lastWords{})
	for family, address := range p.addresses() {
		if body, goodbye, err := p.keepAlive(address).ask("/"); err != nil || body != "answered" || !goodbye {
			t.Errorf("%s, in the drain: %q, close %v, %v; want a response that closes the connection", family, body, goodbye, err)
		}
	}
	p.logged("verdict=resumed")
	t.Logf("cancelled %v after the hook began", time.Since(began).Round(time.Millisecond))
	ready("afterwards")
	for family, address := range p.addresses() {
		c := p.keepAlive(address)
		for range 3 {
			if body, goodbye, err := c.ask("/"); err != nil || body != "answered" || goodbye {
				t.Errorf("%s, afterwards: %q, close %v, %v; want an answer on a connection that is kept", family, body, goodbye, err)
			}
		}
	}
	// And the next end is an end.
	if err := getWait(p).Run(t.Context()); err != nil {
		t.Errorf("the second hook: %v", err)
	}
	_ = p.sidecar.Terminate()
	p.left("clean")
}
