package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// row is a row of rehearse -o json.
type row struct {
	Strategy    string
	Status      int
	Body        string
	Killed      bool
	StayedMS    float64 `json:"stayed_ms"`
	LastByteMS  float64 `json:"last_byte_since_ms"`
	LagMS       float64 `json:"after_last_byte_ms"`
	AllowanceMS float64 `json:"allowance_ms"`
	Unjudged    bool    `json:"not_judged"`
	Checks      []struct {
		What, Want, Got string
		OK              bool
	}
}

// judged fails t for each check of a row that failed, other than some.
func (r row) judged(t *testing.T, other ...string) {
	t.Helper()
	if r.Unjudged {
		t.Logf("%s: not judged: the machine was too busy", r.Strategy)
		return
	}
	for _, c := range r.Checks {
		if !c.OK && !slices.Contains(other, c.What) {
			t.Errorf("%s: %s: expected %s, got %s", r.Strategy, c.What, c.Want, c.Got)
		}
	}
}

type result struct {
	IstioAgent string `json:"istio_agent"`
	Rows       []row
}

func runRehearse(args ...string) (result, error) {
	return runRehearseIn((*exec.Cmd).Start, args...)
}

func runRehearseIn(start func(*exec.Cmd) error, args ...string) (r result, err error) {
	var out bytes.Buffer
	cmd := exec.Command("rehearse", append([]string{"-o", "json"}, args...)...)
	cmd.Stdout = &out
	if err := start(cmd); err != nil {
		return r, err
	}
	_ = cmd.Wait() // exit 1 is for rows that are not as expected
	if err = json.Unmarshal(out.Bytes(), &r); err != nil {
		err = fmt.Errorf("%v: %w: %q", args, err, out.Bytes())
	}
	return r, err
}

// What lastcall agent --compat istio does in Istio's rows, Istio's own agent does as well: the client gets the same at the
// same time, and the pod ends in the same way at the same time. Each row is also judged by the rules of its strategy.
func TestImitationIsAsTheOriginal(t *testing.T) {
	needAgent(t)
	common := []string{
		"--delay", "8500ms", "--grace", "12s",
		"--strategy", "istio-default,istio-drain-30s,istio-exit-on-zero,istio-exit-on-zero-idle,istio-native,prestop-netstat,prestop-sleep-5,grace-7s-istio",
	}
	var imitation, original result
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { imitation, errs[0] = runRehearse(append(common, "--proxy", "envoy")...) })
	both.Go(func() {
		original, errs[1] = runRehearse(append(common, "--proxy", "istio-agent")...)
	})
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(original.IstioAgent, "pilot-agent") || !strings.HasPrefix(imitation.IstioAgent, "imitated") {
		t.Errorf("Istio's agent is reported as %q and %q", original.IstioAgent, imitation.IstioAgent)
	}
	if len(original.Rows) != 8 || len(imitation.Rows) != 8 {
		t.Fatalf("%d and %d rows, want 8", len(original.Rows), len(imitation.Rows))
	}
	for i, o := range original.Rows {
		m := imitation.Rows[i]
		o.judged(t)
		m.judged(t)
		most := 500 + o.AllowanceMS + m.AllowanceMS
		switch o.Strategy {
		case "prestop-netstat", "istio-exit-on-zero":
			// Both ask once a second whether a connection is open. An answer that ends shortly before the question in one
			// run and shortly after it in the other ends the pods a second apart.
			most += 1000
		}
		late := !o.Unjudged && !m.Unjudged && (abs(o.LastByteMS-m.LastByteMS) > most || abs(o.StayedMS-m.StayedMS) > most)
		if o.Status != m.Status || o.Body != m.Body || o.Killed != m.Killed || late {
			t.Errorf("%s: the original's request got %d (%q) after %.0f ms, its pod was gone after %.0f ms, killed: %v; the imitation's got %d (%q) after %.0f ms, gone after %.0f ms, killed: %v",
				o.Strategy, o.Status, o.Body, o.LastByteMS, o.StayedMS, o.Killed, m.Status, m.Body, m.LastByteMS, m.StayedMS, m.Killed)
		}
		t.Logf("%-24s original %d at %5.0f ms, gone at %5.0f ms; imitation %d at %5.0f ms, gone at %5.0f ms",
			o.Strategy, o.Status, o.LastByteMS, o.StayedMS, m.Status, m.LastByteMS, m.StayedMS)
	}
}

// With lastcall wait --envoy as its hooks, a pod of Istio's own agent answers the request and ends with it, although other
// clients hold idle connections and the app exits at SIGTERM. How long Envoy and the agent take to exit is the machine's.
func TestHooksNextToIstio(t *testing.T) {
	needAgent(t)
	// In a network namespace as a pod has it: sockets of other control groups are other containers' in the hook's eyes.
	r, err := runRehearseIn(nettest.New(t).Pod.Start, "--delay", "7s", "--grace", "20s", "--proxy", "istio-agent",
		"--strategy", "lastcall-istio-classic,lastcall-istio-native")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(r.Rows))
	}
	for _, row := range r.Rows {
		row.judged(t, "the request ended", "the pod was gone", "the pod stayed after the last byte and the minimum drain")
		if row.Status != 200 || row.Killed {
			t.Errorf("%s: the client got %d, killed: %v", row.Strategy, row.Status, row.Killed)
		}
		t.Logf("%s: gone %.0f ms after the last byte", row.Strategy, row.LagMS)
	}
}

func abs(f float64) float64 { return max(f, -f) }

// needAgent has rehearse find Envoy and Istio's agent.
func needAgent(t *testing.T) {
	t.Helper()
	t.Setenv("LASTCALL_PEER_ENVOY", peers.Need(t, "envoy"))
	t.Setenv("LASTCALL_PEER_PILOT_AGENT", peers.Need(t, "pilot-agent"))
}
