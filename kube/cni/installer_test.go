package cni

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node's folders, with one network.
func node(t *testing.T) (n Node, list, text string) {
	t.Helper()
	dir := t.TempDir()
	n = Node{Programs: filepath.Join(dir, "bin"), Lists: filepath.Join(dir, "net.d")}
	for _, folder := range []string{n.Programs, n.Lists} {
		must.Do(t, os.Mkdir(folder, 0o755))
	}
	list, text = filepath.Join(n.Lists, "10-flannel.conflist"), content(t, "testdata/flannel.conflist")
	write(t, list, text)
	return n, list, text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Do(t, err)
	return string(text)
}

func TestInstallAndRemove(t *testing.T) {
	n, list, text := node(t)
	write(t, filepath.Join(n.Lists, "20-other.conflist"), "no list")
	write(t, filepath.Join(n.Lists, temporary), "of a process that was killed")
	if err := n.IsInstalled(); err == nil {
		t.Error("it is installed before Install")
	}
	for step, want := range []bool{true, false} {
		if isChanged, err := n.Install([]byte("program")); err != nil || isChanged != want {
			t.Fatalf("time %d: %v, %v; want %v", step, isChanged, err, want)
		}
	}
	if err := n.IsInstalled(); err != nil {
		t.Error(err)
	}
	if got := kinds(t, []byte(content(t, list))); got[len(got)-1] != Name {
		t.Errorf("plugins %q", got)
	}
	for path, want := range map[string]os.FileMode{list: 0o600, filepath.Join(n.Programs, Name): 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if isChanged, err := n.Install([]byte("another version")); err != nil || !isChanged || content(t, filepath.Join(n.Programs, Name)) != "another version" {
		t.Errorf("an upgrade: %v, %v", isChanged, err)
	}
	// A network that comes first in the order of names is the one that is used.
	first := filepath.Join(n.Lists, "05-first.conflist")
	write(t, first, text)
	if err := n.IsInstalled(); err == nil {
		t.Error("it is installed in a network that is not used")
	}
	if _, err := n.Install([]byte("another version")); err != nil {
		t.Fatal(err)
	}
	isBefore := func(path string) bool { return isSame(t, []byte(content(t, path)), []byte(text)) }
	if !isBefore(list) || !strings.Contains(content(t, first), Name) {
		t.Errorf("a network before the first: %s and %s", content(t, first), content(t, list))
	}
	must.Do(t, n.Remove())
	if !isBefore(first) {
		t.Errorf("after removal:\n%s\nwant\n%s", content(t, first), text)
	}
	left, _ := filepath.Glob(n.Lists + "/.*")
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	n.List = "10-flannel.conflist"
	if _, err := n.Install([]byte("p")); err != nil || !isBefore(first) || !strings.Contains(content(t, list), Name) {
		t.Errorf("with a named network: %v", err)
	}
}

func TestCannotInstall(t *testing.T) {
	n, list, text := node(t)
	single := filepath.Join(n.Lists, "00-single.conf")
	write(t, single, `{"type":"bridge"}`)
	if _, err := n.Install([]byte("p")); err == nil || !strings.Contains(err.Error(), "--conf-file") {
		t.Errorf("a single plugin: %v", err)
	}
	must.Do(t, os.Remove(single))
	write(t, list, text[:40]) // half written
	if _, err := n.Install([]byte("p")); err == nil || content(t, list) != text[:40] {
		t.Errorf("half a file: %v", err)
	}
	if err := n.Remove(); err != nil {
		t.Errorf("removal from half a file: %v", err)
	}
	must.Do(t, os.Remove(list))
	if _, err := n.Install([]byte("p")); !errors.Is(err, errNoNetwork) {
		t.Errorf("no network: %v", err)
	}
	write(t, list, strings.Repeat(" ", maxList+1))
	if _, err := n.Install([]byte("p")); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a large file: %v", err)
	}
	n.Programs += "/none"
	if _, err := n.Install([]byte("p")); err == nil || !strings.Contains(err.Error(), "install the plugin") {
		t.Errorf("no folder for programs: %v", err)
	}
}

// running starts an installer; stop ends it and returns its error.
func running(t *testing.T, i *Installer) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	stop = func() error {
		cancel()
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-time.After(time.Minute):
			return errors.New("it does not end")
		}
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestInstallerKeepsThePlugin(t *testing.T) {
	n, list, text := node(t)
	isRemoved := errors.New("not known")
	i := &Installer{Node: n, Program: []byte("program"), Log: slog.New(slog.NewTextHandler(io.Discard, nil)), IsRemoved: func(context.Context) (bool, error) { return isRemoved == nil, isRemoved }}
	if err := os.Remove(list); err != nil { // the node's network is not there yet
		t.Fatal(err)
	}
	stop := running(t, i)
	isInstalled := func() bool { return n.IsInstalled() == nil }
	program := filepath.Join(n.Programs, Name)
	polltest.Eventually(t, "the program in place", func() bool { _, err := os.Stat(program); return err == nil })
	write(t, list, text)
	polltest.Eventually(t, "installed with the network", isInstalled)
	write(t, list, text)
	polltest.Eventually(t, "installed again after another program has written the file", isInstalled)
	must.Do(t, os.Remove(program))
	polltest.Eventually(t, "installed again after the program was deleted", isInstalled)
	must.Do(t, stop())
	if !isInstalled() {
		t.Error("it was removed without an answer")
	}

	isRemoved = nil
	i.IsRemoved = func(ctx context.Context) (bool, error) { return ctx.Err() == nil, nil }
	stop = running(t, i)
	polltest.Eventually(t, "installed by the next one", isInstalled)
	must.Do(t, stop())
	if !isSame(t, []byte(content(t, list)), []byte(text)) {
		t.Errorf("after the removal:\n%s", content(t, list))
	}
}

// A folder that is replaced is not the one that is watched.
func TestInstallerEndsWithItsFolder(t *testing.T) {
	n, list, _ := node(t)
	i := &Installer{Node: n, Program: []byte("program"), Log: slog.New(slog.NewTextHandler(io.Discard, nil)), IsRemoved: func(context.Context) (bool, error) { return false, nil }}
	ended := make(chan error, 1)
	go func() { ended <- i.Run(t.Context()) }()
	polltest.Eventually(t, "installed", func() bool { return n.IsInstalled() == nil })
	_ = os.Remove(list)
	must.Do(t, os.RemoveAll(n.Lists))
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), n.Lists) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it continues")
	}
}

// TestLinkedConfiguration: a list that is a symbolic link stays one, and its target gets the entry: in the folder, and below
// it. A target elsewhere is refused, because the installer sees that folder of the node only.
func TestLinkedConfiguration(t *testing.T) {
	for name, to := range map[string]string{"next to it": "10-flannel.conflist", "below": "network/flannel.conflist"} {
		t.Run(name, func(t *testing.T) {
			n, list, text := node(t)
			target := filepath.Join(n.Lists, to)
			if target != list {
				must.Do(t, os.Mkdir(filepath.Dir(target), 0o755))
				must.Do(t, os.Rename(list, target))
			}
			link := filepath.Join(n.Lists, "00-first.conflist")
			must.Do(t, os.Symlink(to, link))
			for step, want := range []bool{true, false} {
				if isChanged, err := n.Install([]byte("program")); err != nil || isChanged != want {
					t.Fatalf("time %d: %v, %v; want %v", step, isChanged, err, want)
				}
			}
			if err := n.IsInstalled(); err != nil {
				t.Error(err)
			}
			if got, err := os.Readlink(link); err != nil || got != to {
				t.Errorf("the link is to %q, %v", got, err)
			}
			if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() {
				t.Errorf("the target: %v, %v", info, err)
			}
			if got := kinds(t, []byte(content(t, target))); got[len(got)-1] != Name {
				t.Errorf("plugins %q", got)
			}
			must.Do(t, n.Remove())
			if got := kinds(t, []byte(content(t, target))); got[len(got)-1] == Name || len(got) != len(kinds(t, []byte(text))) {
				t.Errorf("after Remove: plugins %q", got)
			}
			if _, err := os.Readlink(link); err != nil {
				t.Errorf("after Remove: %v", err)
			}
		})
	}
	n, list, text := node(t)
	elsewhere := filepath.Join(t.TempDir(), "flannel.conflist")
	must.Do(t, os.Rename(list, elsewhere))
	must.Do(t, os.Symlink(elsewhere, list))
	if _, err := n.Install([]byte("program")); err == nil || !strings.Contains(err.Error(), "is a symbolic link to "+elsewhere) {
		t.Errorf("a link to another folder: %v", err)
	}
	if content(t, elsewhere) != text {
		t.Error("the file in another folder was changed")
	}
	if _, err := os.Readlink(list); err != nil {
		t.Error(err)
	}
}
