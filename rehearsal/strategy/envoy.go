package strategy

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

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
