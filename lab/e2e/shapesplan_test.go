//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// planned is the output of lastcallctl plan -o json for a pod. Times are in milliseconds since the deletion.
type planned struct {
	Gone       float64 `json:"gone_ms"`
	GoneLatest float64 `json:"gone_latest_ms"`
	Containers []struct {
		Name         string  `json:"name"`
		Reaction     string  `json:"reaction"`
		Signal       float64 `json:"signal_ms"`
		SignalLatest float64 `json:"signal_latest_ms"`
		Gone         float64 `json:"gone_ms"`
		GoneLatest   float64 `json:"gone_latest_ms"`
	} `json:"containers"`
	Phases []struct {
		From float64 `json:"from_ms"`
		To   float64 `json:"to_ms"`
		New  string  `json:"new_connections"`
	} `json:"phases"`
	Requests []struct {
		Result string  `json:"result"`
		At     float64 `json:"at_ms"`
		Latest float64 `json:"at_latest_ms"`
	} `json:"requests"`
	Notes []string `json:"notes"`
}

// takes is the time of the request in flight, and connects how long clients of a pod with lastcall connect: its drain
// waits for them.
const takes, connects = 8 * time.Second, 4 * time.Second

// tolerance is how much a time may differ from the plan's.
const tolerance = 1500 * time.Millisecond

// planOf asks for the plan of a pod; app is empty, or what the apps do at their stop signal.
func planOf(t *testing.T, manifest, app string) (p planned) {
	t.Helper()
	args := []string{"plan", "-o", "json", "--request", takes.String(), "--propagation", connects.String(), "-"}
	if app != "" {
		args = append(args, "--app", app)
	}
	cmd := exec.Command(lastcallctl, args...)
	cmd.Stdin = strings.NewReader(manifest)
	var all []planned
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, _ := cmd.Output() // fails if a request is lost
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 1 {
		t.Fatalf("plan: %v: %s%s", err, out, complaint.Bytes())
	}
	return all[0]
}

func (p planned) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "request %s at %.1f;", p.Requests[0].Result, p.Requests[0].At/1000)
	for _, f := range p.Phases {
		fmt.Fprintf(&out, " %s until %.1f", f.New, f.To/1000)
	}
	for _, c := range p.Containers {
		fmt.Fprintf(&out, "; %s signal %s, gone %s", c.Name, between(c.Signal, c.SignalLatest), between(c.Gone, c.GoneLatest))
	}
	return out.String()
}

func between(from, to float64) string {
	if from == to {
		return fmt.Sprintf("%.1f", from/1000)
	}
	return fmt.Sprintf("%.1f to %.1f", from/1000, to/1000)
}

func ms(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }

// isWithin reports whether a time is the planned one, or between two.
func isWithin(at time.Duration, from, to float64) bool {
	return at >= ms(from)-tolerance && at <= ms(to)+tolerance
}

// wrong lists what the plan says otherwise than the node did.
func (p planned) wrong(e *ended) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch r := p.Requests[0]; {
	case r.Result == "unknown":
	case (r.Result == "200") != (e.request.result == "200"):
		add("the request: %s at %.1f s", r.Result, r.At/1000)
	case r.Result != "200" && !isWithin(e.request.at, r.At, r.Latest):
		add("the request is cut at %s s", between(r.At, r.Latest))
	}
	for _, c := range e.connections {
		if !p.allows(c) {
			add("a new connection at %.1f s: not %s", c.at.Seconds(), c.result)
			break
		}
	}
	for _, c := range p.Containers {
		seen := e.containers[c.Name]
		if seen == nil {
			add("there is a container %s", c.Name)
			continue
		}
		if seen.signal > 0 && !isWithin(seen.signal, c.Signal, c.SignalLatest) {
			add("%s gets its signal at %s s", c.Name, between(c.Signal, c.SignalLatest))
		}
		if !isWithin(seen.gone, c.Gone, c.GoneLatest) {
			add("%s is gone at %s s", c.Name, between(c.Gone, c.GoneLatest))
		}
	}
	if !isWithin(e.gone, p.Gone, p.GoneLatest) {
		add("the pod is gone at %s s", between(p.Gone, p.GoneLatest))
	}
	return out
}

// allows reports whether a plan has a connection end so at that time, or within the tolerance of it.
func (p planned) allows(c seen) bool {
	switch isOK := c.result == "200"; {
	case isOK && c.at <= tolerance, !isOK && c.at+tolerance >= ms(p.GoneLatest):
		return true // as before the deletion, or as after the pod
	}
	for _, f := range p.Phases {
		if ms(f.From)-tolerance > c.at || ms(f.To)+tolerance < c.at {
			continue
		}
		isEdge := c.at < ms(f.From)+tolerance // of what begins the phase, such as a reload
		if isEdge || f.New == "unknown" || (f.New == "accepted") == (c.result == "200") {
			return true
		}
	}
	return false
}
