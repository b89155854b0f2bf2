package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// An agent as a user has it: TLS by curl, its connections, a new certificate at
// SIGHUP, its metrics.
func TestAgentWithTLS(t *testing.T) {
	t.Parallel()
	curl := peers.Need(t, "curl")
	authority := certificatetest.New(t)
	secret := certificatetest.NewSecret(t)
	secret.Write(authority.Sign("app.test", 0), authority.PEM())
	requested, answer := make(chan struct{}), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(requested)
			<-answer
		}
		_, _ = io.WriteString(w, "served")
	}))
	defer app.Close()
	log := filepath.Join(t.TempDir(), "access.log")
	cmd := exec.Command("lastcall")
	cmd.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=0s")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	agent := startAgent(t, cmd, app.Listener.Addr().String()+",name=web,tls-cert="+secret.Cert()+",tls-key="+secret.Key(),
		"--access-log", log, "--access-log-format", "json")
	lastcall := func(args ...string) string {
		out, _ := exec.Command("lastcall", append(args, "--status-port", portOf(agent.status))...).CombinedOutput()
		return string(out)
	}
	at := "app.test:" + portOf(agent.address)
	get := func(path string) (string, error) {
		out, err := exec.Command(curl, "-sS", "--cacert", secret.CA(), "--max-time", "20", "--resolve", at+":127.0.0.1", "https://"+at+path).CombinedOutput()
		return string(out), err
	}
	if out, err := get("/"); err != nil || out != "served" {
		t.Errorf("%v: %s", err, out)
	}
	slow := make(chan string, 1)
	go func() { out, _ := get("/slow"); slow <- out }()
	<-requested
	if table := lastcall("connections"); !strings.Contains(table, "TLS 1.3 app.test http/1.1") || !strings.Contains(table, "GET /slow") || !strings.HasPrefix(table, "PEER") {
		t.Error(table)
	}
	var list struct {
		Connections []struct{ Listener, State string }
	}
	if out := lastcall("connections", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || len(list.Connections) != 1 || list.Connections[0].Listener != "web" || list.Connections[0].State != "busy" {
		t.Error(out)
	}
	if out := lastcall("connections", "-o", "yaml"); !strings.Contains(out, "must be text or json") {
		t.Error(out)
	}

	// A name that only the new certificate has; SIGHUP is heard by an agent.
	secret.Write(authority.Sign("next.test", 0), authority.PEM())
	must.Do(t, agent.Process.Signal(syscall.SIGHUP))
	polltest.NoError(t, func() error {
		c, err := tls.Dial("tcp", agent.address, &tls.Config{RootCAs: authority.Pool(), ServerName: "next.test"})
		if err == nil {
			err = c.Close()
		}
		return err
	})
	metrics := lastcall("request", "GET", "metrics")
	for _, line := range []string{
		`lastcall_request_duration_seconds_count{listener="web",protocol="http/1.1",response_class="2xx"} 1`,
		`lastcall_request_duration_seconds_bucket{listener="web",protocol="http/1.1",response_class="2xx",le="0.0005"}`,
		`lastcall_listener_connections{listener="web",state="busy"} 1`,
		`lastcall_tls_handshakes_total{listener="web",resumed="false"}`,
		`lastcall_tls_handshake_failures_total{listener="web",reason="client_alert"}`,
		`lastcall_certificate_reloads_total{listener="web",result="failed"}`,
		`lastcall_certificate_expiry_timestamp_seconds{listener="web"}`,
		`lastcall_connections_refused_total{listener="web"} 0`,
		`lastcall_access_log_lost_total 0`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	must.Do(t, agent.Process.Signal(syscall.SIGTERM))
	close(answer)
	if out := <-slow; out != "served" {
		t.Errorf("the request in flight got %s", out)
	}
	if <-agent.ended; !agent.ProcessState.Success() || !strings.Contains(output.String(), "reloading the certificates") {
		t.Errorf("%v: %s", agent.ProcessState, &output)
	}
	lines, err := os.ReadFile(log)
	if err != nil || strings.Count(string(lines), `"requested_server_name":"app.test"`) != 2 || !strings.Contains(string(lines), `"downstream_tls_version":"TLS 1.3"`) {
		t.Errorf("%v: %s", err, lines)
	}
}

// A wrong configuration is an error before anything serves.
func TestTLSConfigurationRefused(t *testing.T) {
	t.Parallel()
	authority := certificatetest.New(t)
	one, other := certificatetest.NewSecret(t), certificatetest.NewSecret(t)
	one.Write(authority.Sign("one", 0), authority.PEM())
	other.Write(authority.Sign("other", 0), nil)
	for _, c := range []struct {
		options, want string
		more          []string
	}{
		{"tls-cert=" + one.Cert(), "tls-cert and tls-key must be set together", nil},
		{"tls-cert=" + one.Cert() + ",tls-key=/nowhere", "no such file", nil},
		{"tls-cert=" + one.Cert() + ",tls-key=" + other.Key(), "must be matching PEM files", nil},
		{"tls-cert=" + one.Cert() + ",tls-key=" + one.Key() + ",tls-client-ca=" + other.CA(), "it contains no certificate", nil},
		{"tls-cert=" + one.Cert() + ",tls-key=" + one.Key(), "with --proxy envoy, set TLS and limits in --envoy-config", []string{"--proxy", "envoy"}},
		{"max-connections=-1", "must be 1 or more, or 0 for no limit", nil},
		{"protocol=http", "--idle-timeout -1s: must be a duration such as 10s, or 0 for no limit", []string{"--idle-timeout", "-1s"}},
		{"protocol=http", "--max-connections -1: must be 1 or more", []string{"--max-connections", "-1"}},
		{"protocol=http", "must be text or json", []string{"--access-log-format", "xml"}},
	} {
		_, port, _ := net.SplitHostPort(freeLoopback(t))
		args := append([]string{"agent", "--status-address", "127.0.0.1", "--status-port", port, "--admin-address", "off", "--inbound", "127.0.0.1:0=127.0.0.1:1," + c.options}, c.more...)
		cmd := exec.CommandContext(t.Context(), "lastcall", args...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %v: %v: %s", c.options, c.more, err, out)
		}
	}
}
