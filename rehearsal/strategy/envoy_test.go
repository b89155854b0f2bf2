package strategy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

// What is named is taken or refused, with its name; nothing is silently replaced.
func TestFindEnvoy(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "envoy")
	must.Do(t, os.WriteFile(program, nil, 0o755))
	for _, tt := range []struct{ name, variable, path, want string }{ // want: empty for an error
		{"variable", program, "/no/such", program},
		{"PATH", "", dir, program},
		{"variable that leads nowhere", "/no/such", dir, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("LASTCALL_PEER_ENVOY", tt.variable)
			t.Setenv("PATH", tt.path)
			got, err := findPeer("envoy", "how")
			var option load.OptionError
			if isRefused := errors.As(err, &option) && strings.Contains(err.Error(), "no envoy: set LASTCALL_PEER_ENVOY to its path"); got != tt.want || isRefused != (tt.want == "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// What an injector would set for a sidecar with Envoy: all settings in one ProxyConfig.
func TestEnvoySettings(t *testing.T) {
	p := &Pod{Strategy: Strategy{Sidecar: Fixed, TerminationDrain: longFixedDrain}, adminPort: 12345, dir: "/pod"}
	got := strings.Join(p.settings(), "\n")
	for _, want := range []string{`PROXY_CONFIG={"concurrency":2,"proxyAdminPort":12345,"terminationDrainDuration":"30s"}`, "TMPDIR=/pod"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// Istio's agent is found in the same way, and the way to get it is in the error.
func TestFindPilotAgent(t *testing.T) {
	t.Setenv("LASTCALL_PEER_PILOT_AGENT", "")
	t.Setenv("LASTCALL_PEER_ENVOY", "/bin/sh")
	t.Setenv("PATH", "/no/such")
	const want = "no pilot-agent: set LASTCALL_PEER_PILOT_AGENT to its path, or put it into PATH (`make peers ISTIO=1` builds it)"
	if err := new(Programs).find(t.Context(), ProxyIstioAgent, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if version := PilotAgentVersion("/dev/null"); version != "" {
		t.Errorf("the version of an empty file is %q", version)
	}
}
