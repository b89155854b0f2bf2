// Package peers finds the programs that lastcall is tested and measured against: Envoy, nginx, HAProxy, httpbin under
// gunicorn, curl, wrk and their like. lab/peers/install brings them.
//
// A test that needs one asks for it first:
//
//	envoy := peers.Need(t, "envoy")
//
// Where it is missing the test is skipped, and `make test` lists it at the end; in CI the test fails instead, so that
// nothing goes untested there without being seen.
package peers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrMissing is wrapped by Find's error when the machine has no such program.
var ErrMissing = errors.New("missing on this machine")

// T has the methods of *testing.T that Need uses.
type T interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Need returns the path of the program called name, as Find does. Where it is missing it ends the test: as skipped, or
// in CI as failed.
func Need(t T, name string) string {
	t.Helper()
	path, err := Find(name)
	switch {
	case err == nil:
		return path
	case InCI():
		t.Fatalf("%v; in CI no test may be skipped", err)
	default:
		t.Skipf("%v", err)
	}
	return "" // reached only with a T whose Fatalf and Skipf return
}

// Find returns the path of the program called name. It looks, in this order, at the variable LASTCALL_PEER_<NAME>
// (upper case, - as _), at the bin folder that lab/peers/install fills, at PATH, and at the folders for system programs
// that an ordinary user's PATH lacks.
func Find(name string) (string, error) {
	variable := "LASTCALL_PEER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if path := os.Getenv(variable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("peer %s from %s: %w", name, variable, err)
		}
		return path, nil
	}
	if bin, err := binFolder(); err == nil {
		if path, err := exec.LookPath(filepath.Join(bin, name)); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, folder := range []string{"/usr/local/sbin", "/usr/sbin"} {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("peer %s: %w (`make peers` fetches it; %s=PATH names one that you have)", name, ErrMissing,
		variable)
}

// binFolder is the folder that lab/peers/install fills; both must name the same one.
func binFolder() (string, error) {
	if folder := os.Getenv("LASTCALL_PEERS"); folder != "" {
		return filepath.Join(folder, "bin"), nil
	}
	if cache := os.Getenv("XDG_CACHE_HOME"); cache != "" {
		return filepath.Join(cache, "lastcall", "peers", "bin"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".cache", "lastcall", "peers", "bin"), nil
}

// InCI reports whether this runs in CI. It reads the variable that nearly every CI system sets, or our own, which wins.
func InCI() bool {
	value, ok := os.LookupEnv("LASTCALL_CI")
	if !ok || value == "" {
		value = os.Getenv("CI")
	}
	switch value {
	case "", "0", "false":
		return false
	}
	return true
}
