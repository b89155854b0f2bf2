package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// SIGHUP reloads Envoy. The next Envoy answers the request in flight at SIGTERM, and both have ended with lastcall.
func TestEnvoyReloads(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(serveSlowly))
	defer app.Close()
	address, status, log := freeLoopback(t), freeLoopback(t), &logstest.Buffer{}
	cmd := exec.Command("lastcall", "agent", "--proxy", "envoy", "--envoy-path", peers.Need(t, "envoy"), "--termination-log", "",
		"--status-address", "127.0.0.1", "--status-port", portOf(status), "--inbound", address+"="+app.Listener.Addr().String()+",protocol=http")
	cmd.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms", "TERMINATION_GRACE_PERIOD_SECONDS=600",
		`PROXY_CONFIG={"parentShutdownDuration":"5s","proxyAdminPort":`+portOf(freeLoopback(t))+`}`)
	cmd.Stdout, cmd.Stderr = log, log
	endsWithRequest(t, cmd, address, status, func() {
		must.Do(t, cmd.Process.Signal(syscall.SIGHUP))
		polltest.Eventually(t, "the next Envoy serves", func() bool { return strings.Count(log.String(), "Envoy started") == 2 }, log)
	})
}
