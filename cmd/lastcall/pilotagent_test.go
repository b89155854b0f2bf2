package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// istioBootstrap has the stats and the inbound listener of an Envoy under Istio, as far as a hook sees them.
const istioBootstrap = `{
 "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 15000}}},
 "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": [%s]}}},
 "static_resources": {
  "listeners": [{"name": "virtualInbound", "traffic_direction": "INBOUND",
   "address": {"socket_address": {"address": "0.0.0.0", "port_value": 15006}},
   "filter_chains": [{"filters": [{"name": "http", "typed_config": {
    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "stat_prefix": "inbound_0.0.0.0_8080;",
    "access_log": [{"name": "file", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
     "path": "/dev/stdout", "log_format": {"text_format_source": {"inline_string": "ACCESS %%REQ(:PATH)%%\n"}}}}],
    "route_config": {"virtual_hosts": [{"name": "app", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "app", "timeout": "0s"}}]}]},
    "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}],
  "clusters": [{"name": "app", "connect_timeout": "1s", "type": "STATIC", "load_assignment": {"cluster_name": "app", "endpoints": [
   {"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 8080}}}}]}]}}]}}`

// shownStats are the patterns that injection adds to Istio's matcher.
const shownStats = `{"suffix": "downstream_rq_active"}, {"suffix": "downstream_cx_active"}, {"suffix": "downstream_rq_total"}, {"suffix": "downstream_cx_total"}`

// meshPod is a pod with Istio's real agent and a real Envoy, in a network of its own.
type meshPod struct {
	t        *testing.T
	net      *nettest.Net
	program  string // lastcall
	agent    *exec.Cmd
	exited   chan struct{}
	log      logstest.Buffer
	arrived  chan struct{}
	answered chan time.Time
}

func startMeshPod(t *testing.T, stats string) *meshPod {
	t.Helper()
	envoy, pilotAgent := peers.Need(t, "envoy"), needPilotAgent(t)
	p := &meshPod{t: t, net: nettest.New(t), program: programtest.Build(t), exited: make(chan struct{}), arrived: make(chan struct{}, 1), answered: make(chan time.Time, 1)}
	ln := p.net.Pod.Listen(t, "tcp", "127.0.0.1:8080")
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			p.arrived <- struct{}{}
			time.Sleep(2 * time.Second)
		}
		fmt.Fprint(w, "done")
	}))

	folder := t.TempDir()
	template := filepath.Join(folder, "bootstrap.json")
	if err := os.WriteFile(template, fmt.Appendf(nil, istioBootstrap, stats), 0o644); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"configPath": filepath.Join(folder, "etc"), "binaryPath": envoy, "discoveryAddress": "127.0.0.1:15010", "controlPlaneAuthPolicy": "NONE",
	})
	if err != nil {
		t.Fatal(err)
	}
	p.agent = exec.Command(pilotAgent, "proxy", "sidecar", "--domain", "x", "--templateFile", template)
	p.agent.Dir = folder
	p.agent.Env = append(os.Environ(), "INSTANCE_IP=127.0.0.1", "POD_NAME=p", "POD_NAMESPACE=n", "FILE_MOUNTED_CERTS=true", "PILOT_CERT_PROVIDER=none", "PROXY_CONFIG="+string(config))
	p.agent.Stdout, p.agent.Stderr = &p.log, &p.log
	p.agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.agent.WaitDelay = time.Second // one in forty agents leaves its Envoy behind, which a container would end
	if err := p.net.Pod.Start(p.agent); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.agent.Wait(); close(p.exited) }()
	t.Cleanup(func() { _ = syscall.Kill(-p.agent.Process.Pid, syscall.SIGKILL); <-p.exited })
	polltest.Eventually(t, "Envoy listens", func() bool {
		conn, err := p.net.Client.Dial(t.Context(), "tcp", p.net.Pod.TCP4(15006))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, &p.log)
	return p
}

// needPilotAgent is peers.Need, except that CI need not have it: building it takes minutes.
func needPilotAgent(t *testing.T) string {
	t.Helper()
	path, err := peers.Find("pilot-agent")
	if err != nil {
		t.Skip(err)
	}
	return path
}

// command is one of lastcall's in the pod, with short timers.
func (p *meshPod) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.program, args...)
	cmd.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION=1s", "LASTCALL_QUIET_TIME=300ms", "LASTCALL_IDLE_GRACE=0s")
	return cmd
}

func (p *meshPod) request(path string) net.Conn {
	p.t.Helper()
	conn, err := p.net.Client.Dial(p.t.Context(), "tcp", p.net.Pod.TCP4(15006))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", path)
	return conn
}

func (p *meshPod) response(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "done" {
		return fmt.Errorf("%s %q %w", resp.Status, b, err)
	}
	return nil
}

// start begins a command in the pod; the result is its output.
func (p *meshPod) start(cmd *exec.Cmd) (wait func() string) {
	p.t.Helper()
	var out logstest.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.net.Pod.Start(cmd); err != nil {
		p.t.Fatal(err)
	}
	return func() string {
		if err := cmd.Wait(); err != nil {
			p.t.Errorf("%v: %v\n%s", cmd.Args, err, &out)
		}
		return out.String()
	}
}

// busy begins a request of 2 s next to an idle connection.
func (p *meshPod) busy() {
	p.t.Helper()
	for _, path := range []string{"/warm", "/idle"} {
		if err := p.response(p.request(path)); err != nil {
			p.t.Fatal(err)
		}
	}
	slow := p.request("/slow")
	<-p.arrived
	go func() {
		if err := p.response(slow); err != nil {
			p.t.Errorf("the request in flight: %v\n%s", err, &p.log)
		}
		p.answered <- time.Now()
	}()
}

// ended checks the agent's exit and its access log.
func (p *meshPod) ended(began time.Time) {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		p.t.Fatalf("pilot-agent still runs\n%s", &p.log)
	}
	p.t.Logf("pilot-agent exited with %d, %v later", p.agent.ProcessState.ExitCode(), time.Since(began).Round(time.Millisecond))
	if log := p.log.String(); strings.Count(log, "ACCESS ") != 3 || !strings.Contains(log, "ACCESS /slow") {
		p.t.Errorf("the access log lacks lines:\n%s", log)
	}
}

// Native: Istio's own preStop hook drains, the app's waits, and SIGTERM for istio-proxy comes after the app's end. Istio's
// agent then ends Envoy by SIGKILL.
func TestBesideNativePilotAgent(t *testing.T) {
	t.Parallel()
	p := startMeshPod(t, shownStats)
	p.busy()
	p.start(exec.Command(p.agent.Path, "request", "--debug-port=15020", "POST", "drain"))()
	report := filepath.Join(t.TempDir(), "report")
	cmd := p.command("wait", "--envoy", "127.0.0.1:15000", "--report", report)
	out := p.start(cmd)()
	returned, answered := time.Now(), <-p.answered
	t.Logf("the hook returned %v after the last byte; it used %v of a processor", returned.Sub(answered).Round(time.Millisecond), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	if returned.Before(answered) {
		t.Errorf("the hook returned before the response\n%s", out)
	}
	text, err := os.ReadFile(report)
	var r drain.Report
	if err != nil || json.Unmarshal(text, &r) != nil || r.Verdict != drain.Clean || len(r.Faults) > 0 {
		t.Errorf("report: %v\n%s", err, text)
	}
	_ = p.agent.Process.Signal(syscall.SIGTERM)
	p.ended(returned)
}

// Classic: the hook of istio-proxy drains, and ends Envoy when the container of the app has ended. Istio's agent then
// exits by itself.
func TestBesideClassicPilotAgent(t *testing.T) {
	t.Parallel()
	p := startMeshPod(t, shownStats)
	p.busy()
	// The first process of the app's container runs on for a second after the hook.
	app := p.command("-p", "-f", "--kill-child", "sh", "-c", p.program+" wait --envoy 127.0.0.1:15000 && sleep 1")
	app.Path, app.Args[0] = "/usr/bin/unshare", "unshare"
	appEnds := p.start(app)
	cmd := p.command("wait", "--envoy", "127.0.0.1:15000", "--pilot-agent", "15020", "--sidecar")
	out := p.start(cmd)()
	returned := time.Now()
	if answered := <-p.answered; returned.Sub(answered) < 900*time.Millisecond {
		t.Errorf("the hook returned %v after the response; the app ran a second longer\n%s", returned.Sub(answered), out)
	}
	appEnds()
	p.ended(returned)
	if code := p.agent.ProcessState.ExitCode(); code != 0 {
		t.Errorf("pilot-agent exited with %d", code)
	}
}
