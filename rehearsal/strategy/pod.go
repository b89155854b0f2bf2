package strategy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// Env starts pods and gateways.
type Env struct {
	Node     *node.Node
	Ports    *node.Ports
	Programs Programs
	Grace    time.Duration // of pods whose strategy has none; whole seconds
	MaxDelay time.Duration // longest /delay of the built-in app
	Proxy    string        // of the sidecars: ProxyPipe (also empty), ProxyEnvoy or ProxyIstioAgent
	Service  *Service      // a manifest's settings for Programs.App; nil: none
}

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
	adminPort   int    // of the sidecar's Envoy; 0 without one
	termination string // the sidecar's termination message
	members     []node.Member
	appHook     string // the program of the app's hook, if it leaves a process in the container
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
	p := &Pod{Strategy: s, dir: dir, grace: s.GraceOr(env.Grace), minimum: env.Service.join().Minimum,
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
	if p.AppPort, err = env.Ports.Next(); err != nil {
		return err
	}
	var args []string
	if env.Programs.App != "" {
		args = shell(env.Programs.App, "{port}", strconv.Itoa(p.AppPort))
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
		Args: args, Env: environment("PORT=" + strconv.Itoa(p.AppPort)), Output: out, Init: env.Programs.App != "",
	}
	if env.Service != nil {
		command = env.Service.command(command, p.AppPort)
	}
	if p.App, err = env.Node.Start(command); err != nil {
		return err
	}
	if env.Service != nil {
		return env.Service.awaitReady(ctx, p.App, p.AppPort, out)
	}
	// A listening socket is not enough: servers that fork listen before a worker can answer.
	return awaitHTTP(ctx, p.App, "http://"+node.Loopback(p.AppPort)+"/", out, "answer", math.MaxInt)
}

func (env *Env) startSidecar(ctx context.Context, p *Pod) (err error) {
	if p.inbound, err = env.Ports.Next(); err != nil {
		return err
	}
	if p.statusPort, err = env.Ports.Next(); err != nil {
		return err
	}
	p.Address = node.Loopback(p.inbound)
	if env.Proxy == ProxyIstioAgent && p.Strategy.Sidecar.IsIstio() {
		return env.startPilotAgent(ctx, p)
	}
	args := []string{
		env.Programs.Lastcall, "agent",
		"--inbound", p.Address + "=" + node.Loopback(p.AppPort) + ",protocol=" + env.Service.protocol(),
		"--status-address", "127.0.0.1", "--status-port", strconv.Itoa(p.statusPort),
		"--termination-log", p.termination, "--access-log", filepath.Join(p.dir, "access.log"), "--log-format", "json",
	}
	if !p.Strategy.Sidecar.IsLastcall() {
		args = append(args, "--compat", "istio")
	}
	if UsesEnvoy(env.Proxy) {
		if p.adminPort, err = env.Ports.Next(); err != nil {
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
	if d := p.Strategy.TerminationDrain; p.Strategy.Sidecar == Fixed && d != istioFixedDrain {
		more["terminationDrainDuration"] = d.String()
	}
	return more
}

// hook sets the containers' preStop hooks.
func (env *Env) hook(p *Pod) (err error) {
	app := node.Member{Container: p.App}
	sidecar := node.Member{Container: p.Sidecar, Native: p.Strategy.Sidecar.IsNative()}
	exec := func(args ...string) node.Hook { return env.lastcallHook(p.dir, p.granted(), args...) }
	status := strconv.Itoa(p.statusPort)
	switch s := p.Strategy; {
	case s.Sidecar.IsHooks():
		if app.Hook, sidecar.Hook, err = env.hooksNextToIstio(p); err != nil {
			return err
		}
	case s.Sidecar.IsLastcall():
		app.Hook = env.joined(p, "wait", "--status-port", status)
	case s.Sidecar == IstioNative:
		sidecar.Hook = exec("request", "--status-port", status, "POST", "drain")
	case s.Netstat:
		sidecar.Hook = netstatLoop(p.App)
	case s.Sleep > 0:
		app.Hook, sidecar.Hook = node.Sleep(s.Sleep), node.Sleep(s.Sleep)
	case s.SocketWait:
		args := []string{"wait", "--ports", env.Service.port(p.AppPort)}
		if d := env.Service.join().Minimum; d > drain.DefaultMinimumDrain {
			args = append(args, "--minimum-drain", d.String())
		}
		app.Hook = env.joined(p, args...)
	}
	if app.Hook == nil {
		app.Hook = env.ownHook(p)
	}
	// A native sidecar is an init container and comes before the app.
	switch {
	case p.Sidecar == nil:
		p.members = []node.Member{app}
	case sidecar.Native:
		p.members = []node.Member{sidecar, app}
	default:
		p.members = []node.Member{app, sidecar}
	}
	return nil
}

// ownHook is the app's own hook, in the app's container; nil: none.
func (env *Env) ownHook(p *Pod) node.Hook {
	if env.Service == nil || env.Service.Hook == nil {
		return nil
	}
	hook := env.Service.hook(env.Node, p.AppPort, filepath.Join(p.dir, hookLog))
	if h, isExec := hook.(node.Exec); isExec {
		h.Command.Env = env.Service.variables(environment("PORT="+strconv.Itoa(p.AppPort)), p.AppPort)
		h.Command = p.App.Within(h.Command)
		return h
	}
	return hook
}

// joined is the hook that runs a command of lastcall, joined with the app's own as by injection.
func (env *Env) joined(p *Pod, args ...string) node.Hook {
	var variables []string
	if join, own := env.Service.join(), env.ownHook(p); join.Keeps && own != nil {
		return own
	} else if join.Runs {
		grace := drain.DefaultConfig()
		grace.GracePeriod = p.grace
		args = append(args, "--after", grace.LastCallAfter().String(), "--")
		switch own := own.(type) {
		case node.Exec:
			args, variables = append(args, own.Command.Args...), env.Service.variables(nil, p.AppPort)
		case node.HTTPGet:
			args = append(args, string(own))
		}
	}
	hook := env.lastcallHook(p.dir, p.granted(), args...).(node.Exec)
	hook.Command.Env = append(hook.Command.Env, variables...)
	return hook
}

// lastcallHook is an exec preStop hook that runs a command of lastcall, with one variable more.
func (env *Env) lastcallHook(dir, variable string, args ...string) node.Hook {
	args = append([]string{env.Programs.Lastcall}, args...)
	command := node.Command{Args: args, Env: environment(variable), Output: filepath.Join(dir, hookLog)}
	return node.Exec{Node: env.Node, Command: command}
}

// Members are the pod's containers, for a kubelet.
func (p *Pod) Members() []node.Member { return p.members }

// End is how a pod ended.
type End struct {
	Began        time.Time // the kubelet starts to terminate the pod
	App, Sidecar node.Ending
	AppExit      string // "exit 0", "SIGKILL"
	SidecarExit  string
	AppInit      node.Init // how the app was PID 1
	Ignored      string    // the program that ignored its stop signal as PID 1: the app, or a shell; empty: none
}

// Gone is when wait4 has returned for the last container.
func (e End) Gone() time.Time {
	if e.Sidecar.Gone.After(e.App.Gone) {
		return e.Sidecar.Gone
	}
	return e.App.Gone
}

// Killed reports whether a container got SIGKILL.
func (e End) Killed() bool { return !e.App.Killed.IsZero() || !e.Sidecar.Killed.IsZero() }

// Terminate ends the pod by the kubelet's rules and returns when it is gone.
func (p *Pod) Terminate(ctx context.Context) End {
	e := End{Began: time.Now()}
	var remains sync.WaitGroup
	if p.appHook != "" {
		remains.Go(func() {
			<-p.App.Done()
			node.KillNamed(p.appHook) // the end of the app's PID namespace
			_ = os.Remove(p.appHook)
		})
	}
	defer remains.Wait()
	for i, ending := range node.Terminate(ctx, p.members, p.grace) {
		if p.members[i].Container == node.Container(p.App) {
			e.App, e.AppExit, e.AppInit = ending, p.App.Ending(), p.App.Init()
			e.Ignored = p.App.Ignored()
		} else {
			e.Sidecar, e.SidecarExit = ending, p.Sidecar.Ending()
		}
	}
	return e
}
