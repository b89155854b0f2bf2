package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

func stopHAProxy(_, address, backend string) string {
	return fmt.Sprintf(`defaults
    mode http
    timeout connect 10s
    timeout client 10m
    timeout server 10m
frontend in
    bind %[1]s
    default_backend app
backend app
    server app %[2]s
`, address, backend)
}

// The STOPSIGNAL of an image drains its real program, as process 1: a request that it
// has in flight is answered, and it is stopped by the signal that it expects.
func TestStopSignalsOfImages(t *testing.T) {
	for _, tt := range []struct {
		program string
		config  func(dir, address, backend string) string
		command []string // after the program; %s is the configuration
		flags   []string
		signal  syscall.Signal
		name    string
	}{
		{"nginx", peers.NginxConf, []string{"-e", "stderr", "-c", "%s"}, nil, syscall.SIGQUIT, "SIGQUIT"},
		{"haproxy", stopHAProxy, []string{"-db", "-f", "%s"}, []string{"--stop-signal", "USR1"}, syscall.SIGUSR1, "SIGUSR1"},
	} {
		t.Run(tt.program, func(t *testing.T) {
			program := peers.Need(t, tt.program)
			requested, answer := make(chan struct{}), make(chan struct{})
			backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(requested)
					<-answer
				}
				fmt.Fprint(w, "served")
			}))
			defer backend.Close()
			dir, address, app := t.TempDir(), freeLoopback(t), freeLoopback(t)
			config := filepath.Join(dir, "config")
			text := tt.config(dir, app, backend.Listener.Addr().String())
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			status := freeLoopback(t)
			host, port, _ := net.SplitHostPort(status)
			args := append([]string{"run", "--status-address", host, "--status-port", port, "--inbound", address + "=" + app + ",protocol=http",
				"--termination-log", ""}, tt.flags...)
			args = append(args, "--", program)
			for _, arg := range tt.command {
				args = append(args, strings.ReplaceAll(arg, "%s", config))
			}
			var log strings.Builder
			cmd := exec.Command("lastcall", args...)
			cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms", "TERMINATION_GRACE_PERIOD_SECONDS=600")
			cmd.Stderr = &log
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
			if os.Getuid() != 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			}
			ended := startProgram(t, cmd)
			polltest.Eventually(t, "it serves", func() bool { return textOf("http://"+address) == "served" })
			got := make(chan string, 1)
			go func() { got <- textOf("http://" + address + "/slow") }()
			<-requested
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			awaitMetric(t, status, `lastcall_drain_phase{phase="serving"} 0`)
			close(answer)
			if text := <-got; text != "served" {
				t.Errorf("the request in flight got %q", text)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("lastcall run still runs")
			}
			if code := cmd.ProcessState.ExitCode(); code != 0 || !strings.Contains(log.String(), "trigger="+tt.name) {
				t.Errorf("lastcall run ended with %v", cmd.ProcessState)
			}
		})
	}
}
