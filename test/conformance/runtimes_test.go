package conformance

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/peers"
)

// program is the command line of a client's script, for a kind of client and a URL.
type program func(t *testing.T, kind, url string) *exec.Cmd

func python(t *testing.T, kind, url string) *exec.Cmd {
	return exec.Command(peers.Need(t, "python"), "testdata/session.py", kind, url)
}

// java starts the script from its source, which takes a compiler: a JDK.
func java(t *testing.T, kind, url string) *exec.Cmd {
	peers.Need(t, "javac")
	return exec.Command(peers.Need(t, "java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "testdata/Session.java", kind, url)
}

func node(t *testing.T, kind, url string) *exec.Cmd {
	program, npm := peers.Need(t, "node"), peers.Need(t, "npm")
	modules, err := nodeModules(npm)
	switch {
	case err == nil:
	case peers.InCI():
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	command := exec.Command(program, "testdata/node/session.js", kind, url)
	command.Env = append(os.Environ(), "NODE_PATH="+modules)
	return command
}

var (
	nodeOnce  sync.Once
	nodePath  string
	nodeError error
)

// nodeModules installs what package.json names into the user's cache folder, once
// for each of its states. It runs no package's scripts.
func nodeModules(npm string) (string, error) {
	nodeOnce.Do(func() { nodePath, nodeError = installModules(npm) })
	return nodePath, nodeError
}

func installModules(npm string) (string, error) {
	wanted, err := os.ReadFile("testdata/node/package.json")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "lastcall", "conformance", fmt.Sprintf("node-%08x", crc32.ChecksumIEEE(wanted)))
	modules := filepath.Join(folder, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	// Beside it and moved there: another run may be at it, and half an installation must not look whole.
	fresh, err := os.MkdirTemp(filepath.Dir(folder), "node-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := os.WriteFile(filepath.Join(fresh, "package.json"), wanted, 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
	install.Dir = fresh
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install of testdata/node: %w %s", err, out)
	}
	if err := os.Rename(fresh, folder); err != nil {
		if _, there := os.Stat(modules); there != nil {
			return "", err
		}
	}
	return modules, nil
}
