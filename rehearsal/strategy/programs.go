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
	"strings"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

// lastcallPackage is built if there is no lastcall in this program's folder.
const lastcallPackage = "github.com/lastcall-dev/lastcall/cmd/lastcall"

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

// shell returns the arguments that run a command line. exec replaces the shell, so that the program gets the signals.
func shell(line string, fill ...string) []string {
	return []string{"/bin/sh", "-c", "exec " + strings.NewReplacer(fill...).Replace(line)}
}

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

// Proxies by the names of --proxy.
const (
	ProxyPipe       = "pipe"
	ProxyEnvoy      = "envoy"
	ProxyIstioAgent = "istio-agent" // a real Envoy, and in Istio's rows Istio's own agent
)

// UsesEnvoy reports whether a proxy is a real Envoy.
func UsesEnvoy(proxy string) bool { return proxy == ProxyEnvoy || proxy == ProxyIstioAgent }

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
