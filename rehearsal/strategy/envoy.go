package strategy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/envoy"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// Proxies by the names of --proxy.
const (
	ProxyPipe       = "pipe"
	ProxyEnvoy      = "envoy"
	ProxyIstioAgent = "istio-agent" // a real Envoy, and in Istio's rows Istio's own agent
)

// UsesEnvoy reports whether a proxy is a real Envoy.
func UsesEnvoy(proxy string) bool { return proxy == ProxyEnvoy || proxy == ProxyIstioAgent }

// FindEnvoy finds a real Envoy: path, or else LASTCALL_PEER_ENVOY's, or else envoy in PATH.
func FindEnvoy(path string) (string, error) {
	return findPeer("envoy", "--envoy-path", path, "an Envoy program", "`make peers` fetches one")
}

// findPeer finds a program: path, which flag has set, or else the path in LASTCALL_PEER_<NAME>, as for the tests, or else
// name in PATH. what it must be, and how to get it, are for errors.
func findPeer(name, flag, path, what, how string) (string, error) {
	variable := "LASTCALL_PEER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	from := flag
	if path == "" {
		path, from = os.Getenv(variable), variable
	}
	if path == "" {
		found, err := exec.LookPath(name)
		if err != nil {
			return "", OptionError{fmt.Errorf("no %s in PATH: set %s or %s (%s)", name, flag, variable, how)}
		}
		path, from = found, "PATH"
	}
	found, err := exec.LookPath(path)
	if err == nil {
		found, err = filepath.Abs(found) // sidecars run in their own folders
	}
	if err != nil {
		return "", OptionError{fmt.Errorf("%s: must be %s: %w", from, what, err)}
	}
	return found, nil
}

// envoyWorkers is Istio's default --concurrency.
const envoyWorkers = 2

// StatPrefix is the prefix of the listener's stats, the same as Contour's.
const StatPrefix = "ingress_http"

// Envoy is one that another program or its peer's model ends.
type Envoy struct {
	Process *node.Process
	Address string // where clients connect
	Port    int    // of it
	Admin   string // host:port
}

// StartEnvoy starts an Envoy in front of app (host:port) and returns when it serves. args are added to the common ones. Its
// logs are written to dir, which must exist.
func (env *Env) StartEnvoy(ctx context.Context, dir, app string, args ...string) (*Envoy, error) {
	e, err := env.startEnvoy(ctx, dir, app, args)
	if err != nil {
		return nil, fmt.Errorf("envoy: %w", err)
	}
	return e, nil
}

func (env *Env) startEnvoy(ctx context.Context, dir, app string, args []string) (*Envoy, error) {
	listen, err1 := env.Ports.Next()
	admin, err2 := env.Ports.Next()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	e := &Envoy{Address: node.Loopback(listen), Port: listen, Admin: node.Loopback(admin)}
	route := envoy.Route{Listen: e.Address, App: app, Protocol: "http"}
	config, err := envoy.Bootstrap{
		Inbound:   []envoy.Route{route},
		AccessLog: filepath.Join(dir, "access.log"),
	}.Render(e.Admin)
	if err != nil {
		return nil, err
	}
	// Envoy extracts Prometheus labels only from a stat prefix without dots.
	config = bytes.ReplaceAll(config, []byte(route.StatPrefix()), []byte(StatPrefix))
	e.Process, err = env.runEnvoy(ctx, dir, "envoy", config, e.Admin, args)
	return e, err
}

// runEnvoy starts an Envoy with a configuration. name is the base name of its files.
func (env *Env) runEnvoy(ctx context.Context, dir, name string, config []byte, admin string, args []string) (*node.Process, error) {
	file, out := filepath.Join(dir, name+".json"), filepath.Join(dir, name+".log")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return nil, err
	}
	args = append([]string{
		env.Programs.Envoy, "-c", file, "--disable-hot-restart", "-l", "warning",
		"--concurrency", strconv.Itoa(envoyWorkers), "--file-flush-interval-msec", "1000",
	}, args...)
	p, err := env.Node.Start(node.Command{Args: args, Env: environment(), Dir: dir, Output: out})
	if err != nil {
		return nil, err
	}
	return p, awaitHTTP(ctx, p, out, "be ready", "http://"+admin+"/ready", func(status int) bool { return status == http.StatusOK })
}

// Manager is lastcall with an Envoy that it did not start.
type Manager struct {
	Process *node.Process
	Hook    node.Hook // lastcall wait, the preStop hook of both containers

	termination string
}

// Report reads the manager's termination message; see Pod.Report.
func (m *Manager) Report() (*Report, error) { return readReport(m.termination) }

// StartManager starts lastcall agent --admin-address for e, in a pod with a grace period, and returns when it is ready. Its
// logs are written to dir, which must exist.
func (env *Env) StartManager(ctx context.Context, dir string, e *Envoy, grace time.Duration) (*Manager, error) {
	status, err := env.Ports.Next()
	if err != nil {
		return nil, err
	}
	out := filepath.Join(dir, sidecarLog)
	granted := "TERMINATION_GRACE_PERIOD_SECONDS=" + strconv.Itoa(int(grace/time.Second))
	m := &Manager{termination: filepath.Join(dir, terminationMessage)}
	m.Process, err = env.Node.Start(node.Command{
		Args: []string{
			env.Programs.Lastcall, "agent", "--proxy", "envoy", "--admin-address", e.Admin,
			"--status-address", "127.0.0.1", "--status-port", strconv.Itoa(status),
			"--termination-log", m.termination, "--log-format", "json",
		},
		Env: environment(granted),
		Dir: dir, Output: out,
	})
	if err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	m.Hook = env.lastcallHook(dir, granted, "wait", "--status-port", strconv.Itoa(status))
	if err := awaitReady(ctx, m.Process, "http://"+node.Loopback(status)+"/healthz/ready", out); err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	return m, nil
}
