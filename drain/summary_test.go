package drain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	s := func(n int) Millis { return Millis(time.Duration(n) * 100 * time.Millisecond) }
	get := Conversation{Request: "GET /a\x1b\u009b\u202e[2J", Peer: "10.0.0.7:4711", Protocol: "http/1.1"}
	for want, r := range map[string]Report{
		"drained in 12.3s: 5.0s minimum drain, 7.3s waiting for GET /a\\x1b\\u009b\\u202e[2J from 10.0.0.7; nothing cut": {
			Verdict: Clean, Duration: s(123), Phases: []Span{{Draining, s(50)}, {Waiting, s(73)}, {Done, 0}}, HeldBy: []Conversation{get},
		},
		"drained in 28.0s: 28.0s waiting; cut a tcp connection from 10.0.0.8 (fin) and 4 more; 2 connections and requests arrived after the drain began; 3 requests arrived as their idle connections were being closed": {
			Verdict: Cut, Duration: s(280), Phases: []Span{{Waiting, s(280)}}, Late: 2, Raced: 3,
			Open: []Conversation{{Protocol: "tcp", Peer: "10.0.0.8:1", Ending: "fin"}}, LeftOut: 4,
		},
		"drained in 28.0s; cut shop.test from 10.0.0.8 (fin); a sidecar that terminates TLS (tls-cert of --inbound) ends such connections between two requests": {
			Verdict: Cut, Duration: s(280), Open: []Conversation{{Protocol: "tls", Request: "shop.test", Peer: "10.0.0.8:1", Ending: "fin"}},
		},
		"drained in 0.0s; the proxy ended by itself before it was stopped; 1 request arrived as its idle connection was being closed; a (and 1 more faults)": {Verdict: Crashed, Raced: 1, Faults: []string{"a", "b"}},
		"": {Verdict: Resumed},
	} {
		if got := r.Summary(); got != want {
			t.Errorf("%s:\n got %q\nwant %q", r.Verdict, got, want)
		}
	}
}

func TestLimit(t *testing.T) {
	c := DefaultConfig()
	if d, ok := c.Limit(); d != 28*time.Second || !ok {
		t.Errorf("exit on zero: %v, %v", d, ok)
	}
	c.Mode = Fixed
	if d, ok := c.Limit(); d != 5*time.Second || !ok {
		t.Errorf("fixed: %v, %v", d, ok)
	}
	c.Mode = IstioExitOnZero
	if _, ok := c.Limit(); ok {
		t.Error("Istio's exit on zero has a limit")
	}
}

// The termination message is shown by kubectl as it is.
func TestMessageIsPrintable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "message")
	r := Report{Verdict: Cut, Open: []Conversation{{Request: "GET /\u009b31m\u202e", Peer: "10.0.0.7:4711"}}}
	if err := WriteMessage(file, r); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), `GET /\u009b31m\u202e`) {
		t.Errorf("%v, %q", err, b)
	}
}
