package strategy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// Pod is an app with its sidecar, if it has one.
type Pod struct {
	Strategy Strategy
	Address  string // where its clients connect: the sidecar's, or the app's
	AppPort  int
	App      *node.Process
	Sidecar  *node.Process // nil without one

	grace       time.Duration
	minimum     time.Duration // the shortest drain that a replaced sleep demands
	dir         string
	inbound     int // the sidecar's
	statusPort  int
	adminPort   int           // of the sidecar's Envoy; 0 without one
	termination string        // the sidecar's termination message
	members     []node.Member // the app first
	appHook     string        // the program of the app's hook, if it leaves a process in the container
}

// Files in a pod's folder.
const (
	appLog             = "app.log"
	sidecarLog         = "sidecar.log"
	hookLog            = "prestop.log"
	terminationMessage = "termination.json"
)

// StartPod starts a pod and returns when it is ready. It creates dir, for the pod's logs.
func (env *Env) StartPod(ctx context.Context, s Strategy, dir string) (*Pod, error) {
	p := &Pod{Strategy: s, dir: dir, grace: s.GraceOr(env.Grace), minimum: env.Service.Join.Minimum,
		termination: filepath.Join(dir, terminationMessage)}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of pod %s: %w", s.Name, err)
	}
	if err := env.startApp(ctx, p); err != nil {
		return nil, fmt.Errorf("app of %s: %w", s.Name, err)
	}
	p.Address = node.Loopback(p.AppPort)
	if s.Sidecar != NoSidecar {
		if err := env.startSidecar(ctx, p); err != nil {
			return nil, fmt.Errorf("sidecar of %s: %w", s.Name, err)
		}
	}
	if err := env.hook(p); err != nil {
		return nil, fmt.Errorf("hooks of %s: %w", s.Name, err)
	}
	return p, nil
}

func (env *Env) startApp(ctx context.Context, p *Pod) (err error) {
	if p.AppPort, err = env.Node.NextPort(); err != nil {
		return err
	}
	var args []string
	if env.Programs.App != "" {
		// exec replaces the shell, so that the program gets the signals.
		line := strings.ReplaceAll(env.Programs.App, "{port}", strconv.Itoa(p.AppPort))
		args = []string{"/bin/sh", "-c", "exec " + line}
	} else {
		onTerm := "close-listener"
		if p.Strategy.App == Exits {
			onTerm = "exit"
		}
		args = []string{
			env.Programs.Self, "httpbin", "--listen", node.Loopback(p.AppPort),
			"--max-delay", env.MaxDelay.String(), "--on-term", onTerm,
		}
	}
	out := filepath.Join(p.dir, appLog)
	// The built-in app handles its signals, so it needs no namespaces.
	command := node.Command{
		Args: args, Env: env.Service.variables(environment("PORT="+strconv.Itoa(p.AppPort)), p.AppPort), Output: out,
		Init: env.Programs.App != "", StopSignal: env.Service.StopSignal,
	}
	if p.App, err = env.Node.Start(command); err != nil {
		return err
	}
	if env.Service.ReadyPath == "" {
		return awaitPort(ctx, p.App, p.AppPort, out)
	}
	return awaitReady(ctx, p.App, "http://"+node.Loopback(p.AppPort)+env.Service.ReadyPath, out)
}

func (env *Env) startSidecar(ctx context.Context, p *Pod) (err error) {
	if p.inbound, err = env.Node.NextPort(); err != nil {
		return err
	}
	if p.statusPort, err = env.Node.NextPort(); err != nil {
		return err
	}
	p.Address = node.Loopback(p.inbound)
	if env.Proxy == ProxyIstioAgent && p.Strategy.Sidecar.IsIstio() {
		return env.startPilotAgent(ctx, p)
	}
	protocol := "http"
	if env.Service.IsTCP {
		protocol = "tcp"
	}
	args := []string{
		env.Programs.Lastcall, "agent",
		"--inbound", p.Address + "=" + node.Loopback(p.AppPort) + ",protocol=" + protocol,
		"--status-address", "127.0.0.1", "--status-port", strconv.Itoa(p.statusPort),
		"--termination-log", p.termination, "--access-log", filepath.Join(p.dir, "access.log"), "--log-format", "json",
	}
	if !p.Strategy.Sidecar.IsLastcall() {
		args = append(args, "--compat", "istio")
	}
	if UsesEnvoy(env.Proxy) {
		if p.adminPort, err = env.Node.NextPort(); err != nil {
			return err
		}
		args = append(args, "--proxy", "envoy", "--envoy-path", env.Programs.Envoy)
	} else {
		args = append(args, "--admin-address", "off") // all would use the same port
	}
	out := filepath.Join(p.dir, sidecarLog)
	// Run it in the pod's folder, where it finds no configuration of this machine.
	command := node.Command{Args: args, Env: environment(p.settings()...), Dir: p.dir, Output: out}
	if p.Sidecar, err = env.Node.Start(command); err != nil {
		return err
	}
	return awaitReady(ctx, p.Sidecar, "http://"+node.Loopback(p.statusPort)+"/healthz/ready", out)
}

// Arrival is the port that has one more connection when a request has arrived: the app's, or Envoy's inbound port,
// because Envoy pools its connections to the app and may reuse one.
func (p *Pod) Arrival(proxy string) int {
	if UsesEnvoy(proxy) && p.Sidecar != nil {
		return p.inbound
	}
	return p.AppPort
}

// granted is the variable with the grace period.
func (p *Pod) granted() string {
	return "TERMINATION_GRACE_PERIOD_SECONDS=" + strconv.Itoa(int(p.grace/time.Second))
}

// exitOnZero is the variable of the mode ExitOnZero.
const exitOnZero = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true"

// settings are the environment variables that an injector would set for the sidecar.
func (p *Pod) settings() []string {
	out := []string{p.granted()}
	if d := p.minimum; d > drain.DefaultMinimumDrain && p.Strategy.Sidecar.IsLastcall() {
		out = append(out, timers.MinimumDrain+"="+d.String())
	}
	if p.Strategy.Sidecar == ExitOnZero {
		out = append(out, exitOnZero)
	}
	config := p.proxyConfig(map[string]any{})
	if p.adminPort != 0 {
		// The agent writes Envoy's bootstrap to TMPDIR.
		out = append(out, "TMPDIR="+p.dir)
		config["proxyAdminPort"], config["concurrency"] = p.adminPort, envoyWorkers
	}
	if len(config) > 0 {
		text, _ := json.Marshal(config) // numbers and strings cannot fail
		out = append(out, "PROXY_CONFIG="+string(text))
	}
	return out
}

// proxyConfig adds the strategy's settings to more of Istio's ProxyConfig.
func (p *Pod) proxyConfig(more map[string]any) map[string]any {
	if d := p.Strategy.TerminationDrain; d > 0 {
		more["terminationDrainDuration"] = d.String()
	}
	return more
}

const (
	readyTimeout = 30 * time.Second      // for a program to listen; a Python app on a busy machine takes seconds
	readyPeriod  = 20 * time.Millisecond // between two probes
	tailBytes    = 2000                  // of a log in an error

	inFlightLimit  = 10 * time.Second
	inFlightPeriod = 5 * time.Millisecond
	settle         = 50 * time.Millisecond // from the app's accept to its handler
)

// awaitPort is a tcpSocket readiness probe.
func awaitPort(ctx context.Context, p *node.Process, port int, log string) error {
	return await(ctx, p, log, fmt.Sprintf("listen on port %d", port), func() bool {
		c, err := net.DialTimeout("tcp", node.Loopback(port), time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// awaitReady is an httpGet readiness probe: a status below 400 is a success.
func awaitReady(ctx context.Context, p *node.Process, url, log string) error {
	return await(ctx, p, log, "be ready at "+url, func() bool {
		within, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		status, err := probe.Get(within, url, http.Header{}, new(net.Dialer).DialContext)
		return err == nil && status < http.StatusBadRequest
	})
}

// await probes until the probe succeeds, the process ends or the time runs out.
func await(ctx context.Context, p *node.Process, log, what string, succeeds func() bool) error {
	within, stop := context.WithTimeout(ctx, readyTimeout)
	defer stop()
	isReady := false
	err := poll.Until(within, readyPeriod, func() bool {
		isReady = succeeds()
		return isReady || p.HasEnded()
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("did not %s within %v%s", what, readyTimeout, tail(log))
	case p.HasEnded() && isReady:
		return errors.New("exited at once: another program uses its port" + tail(log))
	case p.HasEnded():
		return fmt.Errorf("exited (%s) before it could %s%s", p.Ending(), what, tail(log))
	}
	return nil
}

// tail is the end of a log, for an error message.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil || len(data) == 0 {
		return ""
	}
	if len(data) > tailBytes {
		data = data[len(data)-tailBytes:]
	}
	return "; its log:\n" + printable.Lines(strings.TrimSpace(string(data)))
}

// AwaitInFlight returns when each app has one more connection than before: the request has arrived. It reads the
// kernel's socket table, so that it works with any app.
func AwaitInFlight(ctx context.Context, before map[int]int) error {
	within, stop := context.WithTimeout(ctx, inFlightLimit)
	defer stop()
	missing := len(before)
	var now map[int]int
	var failed error
	err := poll.Until(within, inFlightPeriod, func() bool {
		now, failed = node.Established()
		missing = 0
		for port, n := range before {
			if now[port] <= n {
				missing++
			}
		}
		return missing == 0 || failed != nil
	})
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%d of %d requests did not reach their apps within %v", missing, len(before), inFlightLimit)
	}
	return poll.Pause(ctx, settle)
}
