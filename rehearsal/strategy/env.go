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

// Strategy is a way of stopping a pod.
type Strategy struct {
	Name  string
	Group string // title of the group in the table
	Words string // description, in one line
	Envoy string // Words with a real Envoy as the sidecar, if different

	Sidecar          Sidecar
	App              SIGTERMBehaviour // of the built-in app
	TerminationDrain time.Duration    // of Fixed
	Sleep            time.Duration    // preStop sleep of the app and of the sidecar
	SocketWait       bool             // the app's preStop hook is lastcall wait --ports, without a sidecar
	Netstat          bool             // the sidecar's preStop hook waits until only the proxy listens
	Grace            time.Duration    // instead of the pod's; zero: the pod's
	Idle             bool             // other clients hold idle connections to the sidecar
}

// GraceOr is the strategy's own grace period, or grace.
func (s Strategy) GraceOr(grace time.Duration) time.Duration {
	if s.Grace > 0 {
		return s.Grace
	}
	return grace
}

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

// Begin starts the environment's node and finds its programs. It creates the folder for all logs: keep, which must be
// empty or not exist, or a temporary one. end ends all processes, and removes a temporary folder.
func (env *Env) Begin(ctx context.Context, keep string, strategies []Strategy) (dir string, end func(), err error) {
	dir, done, err := folder(keep)
	if err != nil {
		return "", nil, err
	}
	env.Node, env.Ports = node.New(), &node.Ports{}
	end = func() { env.Node.Close(); done() }
	if err := env.Programs.find(ctx, env.Proxy, strategies); err != nil {
		end()
		return "", nil, err
	}
	return dir, end, nil
}

func folder(keep string) (dir string, done func(), err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", "lastcall-rehearsal-")
		if err != nil {
			return "", nil, fmt.Errorf("create a folder for the rehearsal: %w", err)
		}
		return dir, func() { _ = os.RemoveAll(dir) }, nil
	}
	if dir, err = filepath.Abs(keep); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", nil, load.OptionError{Err: fmt.Errorf("--keep-logs: %w", err)}
	}
	// Files of an earlier run would be read as this one's.
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		return "", nil, load.OptionError{Err: fmt.Errorf("--keep-logs %s: must be empty, or not exist yet", dir)}
	}
	return dir, func() {}, nil
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
	if s != nil && s.IsTCP {
		return strconv.Itoa(port) + "/tcp"
	}
	return strconv.Itoa(port)
}

// Programs are the binaries of a rehearsal.
type Programs struct {
	Lastcall string // lastcall
	Self     string // this program, with the built-in app
	App      string // command line of a service, with {port}; empty: the built-in app
	Envoy    string // a real one; empty if none takes part

	PilotAgent string // Istio's agent; empty if it does not take part
}

// find completes the programs: lastcall, unless its path is given or no strategy needs it, and those of the proxy. Self
// has the built-in app.
func (p *Programs) find(ctx context.Context, proxy string, strategies []Strategy) (err error) {
	needed := slices.ContainsFunc(strategies, func(s Strategy) bool { return s.Sidecar != NoSidecar || s.SocketWait })
	if p.Lastcall == "" && needed {
		p.Lastcall, err = findLastcall(ctx, p.Self)
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

// findLastcall returns the path of lastcall: in the folder of self, or built by `go build` into the user's cache
// folder. To build it, the working folder must be in the source tree.
func findLastcall(ctx context.Context, self string) (string, error) {
	neighbour := filepath.Join(filepath.Dir(self), "lastcall")
	if _, err := exec.LookPath(neighbour); err == nil {
		return neighbour, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find lastcall: %w", err)
	}
	built, err := buildLastcall(ctx)
	if err != nil {
		return "", fmt.Errorf("find lastcall: %s does not exist, and building it failed: %w "+
			"(put lastcall into that folder, set --lastcall, or run this in the source tree)", neighbour, err)
	}
	return built, nil
}

// lastcallPackage is built if there is no lastcall in this program's folder.
const lastcallPackage = "github.com/lastcall-dev/lastcall/cmd/lastcall"

func buildLastcall(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "lastcall", "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Build under another name and rename: a rehearsal that runs at the same time must not start half a program.
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	fresh := filepath.Join(tmp, "lastcall")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", fresh, lastcallPackage).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build %s: %w: %s", lastcallPackage, err, strings.TrimSpace(string(out)))
	}
	path := filepath.Join(dir, "lastcall")
	if err := os.Rename(fresh, path); err != nil {
		return "", err
	}
	return path, nil
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
