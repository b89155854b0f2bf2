package strategy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// lastcallPackage is what is built when there is no lastcall beside this program.
const lastcallPackage = "github.com/lastcall-dev/lastcall/cmd/lastcall"

// Programs are the binaries that are played with.
type Programs struct {
	Lastcall string // lastcall
	Self     string // this program: the built-in gateway and app
	App      string // a command line in place of the built-in app; {port} is filled in
	Gateway  string // in place of the built-in gateway; {port}, {endpoints} and {endpoint} are filled in; ProxyEnvoy: Envoy
	Envoy    string // a real one; empty where none is played with
}

// FindPrograms finds lastcall, unless it is named or none of the strategies
// has a sidecar, and takes self for the rest.
func FindPrograms(ctx context.Context, lastcall, self string, strategies []Strategy) (Programs, error) {
	needed := slices.ContainsFunc(strategies, func(s Strategy) bool { return s.Way != NoSidecar })
	var err error
	if lastcall == "" && needed {
		lastcall, err = findLastcall(ctx, self)
	} else if lastcall != "" {
		if lastcall, err = filepath.Abs(lastcall); err == nil {
			err = checkProgram(lastcall)
		}
		if err != nil {
			err = OptionError{fmt.Errorf("--lastcall: %w", err)}
		}
	}
	return Programs{Lastcall: lastcall, Self: self}, err
}

// findLastcall returns the path of lastcall: the one beside self, or one built by
// `go build` into the user's cache folder, which needs the working folder to be in
// the module's source tree.
func findLastcall(ctx context.Context, self string) (string, error) {
	beside := filepath.Join(filepath.Dir(self), "lastcall")
	if err := checkProgram(beside); err == nil {
		return beside, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find lastcall: %w", err)
	}
	built, err := buildLastcall(ctx)
	if err != nil {
		return "", fmt.Errorf("find lastcall: there is none at %s, and it could not be built: %w (put it beside lastcallctl, name it by --lastcall, or run this in the source tree)", beside, err)
	}
	return built, nil
}

func checkProgram(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
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
	// Built aside and renamed, so that a rehearsal that runs at the same time
	// never starts half a program.
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

// shell is a command line as the argument list of a process that becomes the
// program: exec leaves no shell between it and its signals.
func shell(line string, fill ...string) []string {
	return []string{"/bin/sh", "-c", "exec " + strings.NewReplacer(fill...).Replace(line)}
}

// ownVariables are what lastcall reads from its environment.
var ownVariables = []string{
	"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "MINIMUM_DRAIN_DURATION", "TERMINATION_GRACE_PERIOD_SECONDS",
	"PROXY_CONFIG", "LASTCALL_",
}

// environment is this process's without what would change how a sidecar ends,
// and with more.
func environment(more ...string) []string {
	var out []string
	for _, v := range os.Environ() {
		own := false
		for _, prefix := range ownVariables {
			own = own || strings.HasPrefix(v, prefix)
		}
		if !own {
			out = append(out, v)
		}
	}
	return append(out, more...)
}

// CheckLine says what a command line lacks: a program, or a placeholder that it
// cannot do without.
func CheckLine(line string, needs ...string) error {
	if strings.TrimSpace(line) == "" {
		return errors.New("the command line is empty")
	}
	for _, place := range needs {
		if !strings.Contains(line, place) {
			return fmt.Errorf("the command line %q lacks %s, which is replaced by what is assigned to it", line, place)
		}
	}
	return nil
}
