package strategy

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
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
			return "", load.OptionError{Err: fmt.Errorf("no %s in PATH: set %s or %s (%s)", name, flag, variable, how)}
		}
		path, from = found, "PATH"
	}
	found, err := exec.LookPath(path)
	if err == nil {
		found, err = filepath.Abs(found) // sidecars run in their own folders
	}
	if err != nil {
		return "", load.OptionError{Err: fmt.Errorf("%s: must be %s: %w", from, what, err)}
	}
	return found, nil
}

// envoyWorkers is Istio's default --concurrency.
const envoyWorkers = 2

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
