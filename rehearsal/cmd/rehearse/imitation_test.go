package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// row is a row of rehearse -o json.
type row struct {
	Strategy    string
	Status      int
	Body        string
	Killed      bool
	TookMS      float64 `json:"took_ms"`
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

// runRehearse runs the program; start starts it.
func runRehearse(start func(*exec.Cmd) error, args ...string) (r result, err error) {
	var out, log bytes.Buffer
	cmd := exec.Command("rehearse", append([]string{"-o", "json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := start(cmd); err != nil {
		return r, err
	}
	ended := cmd.Wait() // exit 1 is for rows that are not as expected
	if err = json.Unmarshal(out.Bytes(), &r); err != nil {
		err = fmt.Errorf("%v: %w: %w: %q\n%s", args, ended, err, out.Bytes(), log.Bytes())
	}
	return r, err
}

// delay is that of the imitation's requests, and lead how long before the scale-down a busy machine may have sent them:
// they then last longer than the 7 s at which the last of the rows cuts them.
const delay, lead = 11_500, 4_000 // ms

// ends returns when the request and the pod ended, in milliseconds. How much of the request was left at the scale-down
// depends on the machine, so the end of an answered one counts from its beginning, and that of a pod which ends by itself
// from the last byte.
func (r row) ends() (request, pod float64) {
	request, pod = r.LastByteMS, r.StayedMS
	if r.Status == http.StatusOK {
		request = r.TookMS
		if !r.Killed {
			pod = r.LagMS
		}
	}
	return request, pod
}

// What lastcall agent --compat istio does in Istio's rows, Istio's own agent does as well: the client gets the same at the
// same time, and the pod ends in the same way at the same time. Each row is also judged by the rules of its strategy.
func TestImitationIsAsTheOriginal(t *testing.T) {
	t.Parallel()
	start := needAgent(t, (*exec.Cmd).Start)
	common := []string{
		"--delay", fmt.Sprint(delay, "ms"), "--grace", "14s",
		"--strategy", "istio-default,istio-drain-30s,istio-exit-on-zero,istio-exit-on-zero-idle,istio-native,prestop-netstat,prestop-sleep-5,grace-7s-istio",
	}
	var imitation, original result
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { imitation, errs[0] = runRehearse(start, append(common, "--proxy", "envoy")...) })
	both.Go(func() { original, errs[1] = runRehearse(start, append(common, "--proxy", "istio-agent")...) })
	both.Wait()
	must.Do(t, errors.Join(errs[:]...))
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
		if sent := max(o.TookMS-o.LastByteMS, m.TookMS-m.LastByteMS); sent > lead {
			t.Logf("%s: not compared: the machine was too busy: a request was sent %.0f ms before the scale-down", o.Strategy, sent)
			continue
		}
		most := 500 + o.AllowanceMS + m.AllowanceMS
		switch o.Strategy {
		case "prestop-netstat", "istio-exit-on-zero":
			// Both ask once a second whether a connection is open. An answer that ends shortly before the question in one
			// run and shortly after it in the other ends the pods a second apart.
			most += 1000
		}
		request, pod := o.ends()
		itsRequest, itsPod := m.ends()
		late := !o.Unjudged && !m.Unjudged && (abs(request-itsRequest) > most || abs(pod-itsPod) > most)
		text := fmt.Sprintf("the original's request got %d (%q) after %.0f ms, its pod was gone after %.0f ms, killed: %v; "+
			"the imitation's got %d (%q) after %.0f ms, gone after %.0f ms, killed: %v",
			o.Status, o.Body, request, pod, o.Killed, m.Status, m.Body, itsRequest, itsPod, m.Killed)
		if o.Status != m.Status || o.Body != m.Body || o.Killed != m.Killed || late {
			t.Errorf("%s: %s", o.Strategy, text)
		} else {
			t.Logf("%s: %s", o.Strategy, text)
		}
	}
}

// With lastcall wait --envoy as its hooks, a pod of Istio's own agent answers the request and ends with it, although other
// clients hold idle connections and the app exits at SIGTERM. How long Envoy and the agent take to exit is the machine's.
func TestHooksNextToIstio(t *testing.T) {
	t.Parallel()
	// In a network namespace as a pod has it: sockets of other control groups are other containers' in the hook's eyes.
	r, err := runRehearse(needAgent(t, nettest.New(t).Pod.Start), "--delay", "7s", "--grace", "20s", "--proxy", "istio-agent",
		"--strategy", "lastcall-istio-classic,lastcall-istio-native")
	must.Do(t, err)
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

// needAgent has rehearse find Envoy and Istio's agent when start starts it.
func needAgent(t *testing.T, start func(*exec.Cmd) error) func(*exec.Cmd) error {
	t.Helper()
	found := append(os.Environ(), "LASTCALL_PEER_ENVOY="+peers.Need(t, "envoy"),
		"LASTCALL_PEER_PILOT_AGENT="+peers.Need(t, "pilot-agent"))
	return func(cmd *exec.Cmd) error {
		cmd.Env = found
		return start(cmd)
	}
}
