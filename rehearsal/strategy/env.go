package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// Setup is the part of the options that all rehearsals on this machine have.
type Setup struct {
	Strategies []string // names; empty: the rehearsal's own choice
	KeepLogs   string   // empty folder for all logs; empty: none are kept
	Programs   Programs // those with a path are not looked for
	Progress   *os.File // gets a line of progress; nil: nothing
}

// Env starts pods.
type Env struct {
	Setup
	Node     *node.Node
	Grace    time.Duration // of pods whose strategy has none; whole seconds
	MaxDelay time.Duration // longest /delay of the built-in app
	Proxy    string        // of the sidecars: ProxyPipe (also empty), ProxyEnvoy or ProxyIstioAgent
	Service  Service       // a manifest's settings for Programs.App
}

// Strategy is a way of stopping a pod.
type Strategy struct {
	Name  string
	Group string // title of the group in the table
	Words string // description, in one line
	Envoy string // Words with a real Envoy as the sidecar, if different

	Sidecar          Sidecar
	App              SIGTERMBehaviour // of the built-in app
	TerminationDrain time.Duration    // of Fixed; zero: 5 s, its default
	Sleep            time.Duration    // preStop sleep of the app and of the sidecar
	SocketWait       bool             // the app's preStop hook is lastcall wait --ports, without a sidecar
	Netstat          bool             // the sidecar's preStop hook waits until only the proxy listens
	Grace            time.Duration    // instead of the pod's; zero: the pod's
	Idle             bool             // other clients hold idle connections to the sidecar
}

// GraceOr is the strategy's own grace period, or grace.
func (s Strategy) GraceOr(grace time.Duration) time.Duration { return cmp.Or(s.Grace, grace) }

// Sidecar is the kind of sidecar, and how it ends at SIGTERM.
type Sidecar int

const (
	NoSidecar      Sidecar = iota // the app alone
	Fixed                         // Istio: sleep terminationDrainDuration, then kill
	ExitOnZero                    // Istio: EXIT_ON_ZERO_ACTIVE_CONNECTIONS
	IstioNative                   // Istio: native sidecar, /drain in preStop, exit at SIGTERM
	Lastcall                      // lastcall as a classic sidecar
	LastcallNative                // lastcall as a native sidecar
	Hooks                         // Istio's agent, with lastcall wait --envoy as the hooks of app and sidecar
	HooksNative                   // Istio's agent as a native sidecar; lastcall wait --envoy as the app's hook
)

// IsLastcall reports whether lastcall ends the pod, in its own mode.
func (s Sidecar) IsLastcall() bool { return s == Lastcall || s == LastcallNative || s.IsHooks() }

// IsHooks reports whether lastcall is there as hooks alone.
func (s Sidecar) IsHooks() bool { return s == Hooks || s == HooksNative }

// IsNative reports whether it is a restartable init container.
func (s Sidecar) IsNative() bool { return s == IstioNative || s == LastcallNative || s == HooksNative }

// IsIstio reports whether it is Istio's agent, its own or an imitation.
func (s Sidecar) IsIstio() bool {
	return s == Fixed || s == ExitOnZero || s == IstioNative || s.IsHooks()
}

// SIGTERMBehaviour is an app's behaviour at SIGTERM.
type SIGTERMBehaviour int

const (
	Exits          SIGTERMBehaviour = iota // exits at once and drops requests in flight
	ClosesListener                         // closes its listening socket at once, finishes the requests in flight
)

// Begin starts the environment's node and finds its programs. It creates the folder for all logs, KeepLogs or a
// temporary one. end ends all processes, and removes a temporary folder.
func (env *Env) Begin(ctx context.Context, strategies []Strategy) (dir string, end func(), err error) {
	temporary, err := os.MkdirTemp("", "lastcall-rehearsal-")
	if err != nil {
		return "", nil, fmt.Errorf("create a folder for the rehearsal: %w", err)
	}
	env.Node = node.New()
	end = func() { env.Node.Close(); _ = os.RemoveAll(temporary) }
	if dir = temporary; env.KeepLogs != "" {
		dir, err = emptyFolder(env.KeepLogs)
	}
	if err == nil {
		env.Programs.build = filepath.Join(temporary, "bin")
		err = env.Programs.find(ctx, env.Proxy, strategies)
	}
	if err != nil {
		end()
		return "", nil, err
	}
	return dir, end, nil
}

// emptyFolder creates a folder for logs. Files of an earlier run would be read as this one's.
func emptyFolder(keep string) (dir string, err error) {
	if dir, err = filepath.Abs(keep); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", load.OptionError{Err: fmt.Errorf("--keep-logs: %w", err)}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		return "", load.OptionError{Err: fmt.Errorf("--keep-logs %s: must be empty, or not exist yet", dir)}
	}
	return dir, nil
}

// Proxies by the names of --proxy.
const (
	ProxyPipe       = "pipe"
	ProxyEnvoy      = "envoy"
	ProxyIstioAgent = "istio-agent" // a real Envoy, and in Istio's rows Istio's own agent
)

// UsesEnvoy reports whether a proxy is a real Envoy.
func UsesEnvoy(proxy string) bool { return proxy == ProxyEnvoy || proxy == ProxyIstioAgent }

// Service has a manifest's settings for the app.
type Service struct {
	Env        []string       // NAME=value; {port} stands for the app's port
	StopSignal syscall.Signal // zero: SIGTERM
	ReadyPath  string         // of its readiness probe by HTTP; empty: ready when the port is open
	IsTCP      bool           // the app's protocol is not HTTP
	Port       int            // the containerPort that the app's own port takes the place of; 0: unknown
	Hook       *Hook          // the app's own, which a strategy with a hook for the app replaces or joins; nil: none
	Join       Join           // the treatment of the hook by lastcall's injection
}

// variables adds the manifest's to an environment.
func (s *Service) variables(env []string, port int) []string {
	env = slices.Clone(env)
	for _, v := range s.Env {
		env = append(env, strings.ReplaceAll(v, "{port}", strconv.Itoa(port)))
	}
	return env
}

// port is the argument of lastcall wait --ports.
func (s *Service) port(port int) string {
	if s.IsTCP {
		return strconv.Itoa(port) + "/tcp"
	}
	return strconv.Itoa(port)
}

// Programs are the binaries of a rehearsal.
type Programs struct {
	Lastcall string // lastcall; empty: found or built
	Self     string // this program, which has the built-in app; empty: found
	App      string // command line of a service, with {port}; empty: the built-in app
	Envoy    string // a real one; empty if none takes part

	PilotAgent string // Istio's agent; empty if it does not take part

	build string // folder for a lastcall that is built
}

// find completes the programs: lastcall, unless its path is given or no strategy needs it, and those of the proxy.
func (p *Programs) find(ctx context.Context, proxy string, strategies []Strategy) (err error) {
	if p.Self == "" {
		if p.Self, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
	}
	needed := slices.ContainsFunc(strategies, func(s Strategy) bool { return s.Sidecar != NoSidecar || s.SocketWait })
	if p.Lastcall == "" && needed {
		p.Lastcall, err = p.findLastcall(ctx)
	} else if p.Lastcall != "" {
		if p.Lastcall, err = filepath.Abs(p.Lastcall); err == nil {
			_, err = exec.LookPath(p.Lastcall)
		}
		if err != nil {
			err = load.OptionError{Err: fmt.Errorf("--lastcall: %w", err)}
		}
	}
	if err == nil && UsesEnvoy(proxy) {
		p.Envoy, err = findPeer("envoy", "`make peers` fetches one")
	}
	if err == nil && proxy == ProxyIstioAgent {
		p.PilotAgent, err = findPeer("pilot-agent", "`make peers ISTIO=1` builds it")
	}
	return err
}

// lastcallPackage is built if there is no lastcall in this program's folder.
const lastcallPackage = "github.com/lastcall-dev/lastcall/cmd/lastcall"

// findLastcall returns the path of lastcall: in this program's folder, or built. To build it, the working folder must
// be in the source tree.
func (p *Programs) findLastcall(ctx context.Context) (string, error) {
	neighbour := filepath.Join(filepath.Dir(p.Self), "lastcall")
	if _, err := exec.LookPath(neighbour); err == nil {
		return neighbour, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find lastcall: %w", err)
	}
	built := filepath.Join(p.build, "lastcall")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", built, lastcallPackage).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("find lastcall: %s does not exist, and building it failed: go build %s: %w: %s "+
			"(put lastcall into that folder, set --lastcall, or run this in the source tree)",
			neighbour, lastcallPackage, err, strings.TrimSpace(string(out)))
	}
	return built, nil
}

// findPeer finds a program: the path in LASTCALL_PEER_<NAME>, as for the tests, or else name in PATH. how to get it is
// for errors.
func findPeer(name, how string) (string, error) {
	variable := "LASTCALL_PEER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	found, err := exec.LookPath(cmp.Or(os.Getenv(variable), name))
	if err == nil {
		found, err = filepath.Abs(found) // sidecars run in their own folders
	}
	if err != nil {
		err = fmt.Errorf("no %s: set %s to its path, or put it into PATH (%s): %w", name, variable, how, err)
		return "", load.OptionError{Err: err}
	}
	return found, nil
}

// envoyWorkers is Istio's default --concurrency.
const envoyWorkers = 2

// ownVariables are the prefixes of variables that lastcall reads.
var ownVariables = []string{
	"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "MINIMUM_DRAIN_DURATION", "TERMINATION_GRACE_PERIOD_SECONDS",
	"PROXY_CONFIG", "LASTCALL_", "ISTIO_",
}

// environment is this process's, without the variables that change how a sidecar ends, and with more.
func environment(more ...string) []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(ownVariables, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	return append(own, more...)
}
