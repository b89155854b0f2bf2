package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// containerd starts one of the test's own and returns how to ask it.
func containerd(t *testing.T) func(args ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		skip(t, "containerd needs root")
	}
	for _, program := range []string{"containerd", "ctr", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, fmt.Sprintf("%v: they come with the package containerd", err))
		}
	}
	dir := t.TempDir()
	config, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "socket")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n", dir+"/root", dir+"/state", socket)
	create(t, config, text, 0o644, time.Now())
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute) // of all that a test does with it
	daemon := exec.CommandContext(ctx, "containerd", "--config", config, "--log-level", "error")
	daemon.Cancel = func() error { return daemon.Process.Signal(syscall.SIGTERM) }
	must.Do(t, daemon.Start())
	t.Cleanup(func() { stop(); _ = daemon.Wait() })
	ask := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "ctr", append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...).CombinedOutput()
		return string(out), err
	}
	polltest.NoError(t, func() error { // ctr waits for the socket, and fails where there is no file yet
		_, err := ask("version")
		return err
	})
	return func(args ...string) string {
		t.Helper()
		out, err := ask(args...)
		if err != nil {
			t.Fatalf("ctr %q: %v\n%s", args, err, out)
		}
		return out
	}
}

// containerd, as on Kubernetes' nodes, imports each kind of archive under its full name and runs its program.
func TestContainerdTakesAndRunsIt(t *testing.T) {
	ctr := containerd(t)
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		build := exec.Command("go", "build", "-o", dir+"/"+arch+"/program", "./testdata/program")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build a Go program: %v\n%s", err, out)
		}
	}
	for tag, source := range map[string]string{"oci": runtime.GOARCH, "index": "{arch}"} {
		archive := filepath.Join(dir, tag+".tar")
		err := run([]string{"-name", "localhost/test:" + tag, "-capabilities", "-user", "1337:1337", "-output", archive,
			filepath.Join(dir, source, "program"), "/program"})
		must.Do(t, err)
		ctr("images", "import", "--all-platforms", archive)
		image := "localhost/test:" + tag
		if list := ctr("images", "check", "name=="+image); !strings.Contains(list, image+" ") || !strings.Contains(list, "complete") {
			t.Errorf("after the import of %s there is\n%s", tag, list)
		}
		for i, container := range []struct {
			flags     []string
			permitted string
		}{
			// Under no_new_privs, ctr's default: what the runtime grants is kept, and nothing is gained.
			{[]string{"--cap-add", "CAP_NET_ADMIN"}, "0000000000001100"},
			{[]string{"--cap-drop", "CAP_SETPCAP"}, "0000000000000000"},
		} {
			got := ctr(append(append([]string{"run", "--rm", "--read-only"}, container.flags...), image, fmt.Sprintf("test-%s-%d", tag, i))...)
			if want := "CapPrm: " + container.permitted + "\nCapEff: 0000000000000000\nNoNewPrivs: 1\n"; got != want {
				t.Errorf("%s, %q: the program has %q, want %q", tag, container.flags, got, want)
			}
		}
	}
}

// skip ends a test that this machine cannot run; in CI it must.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("LASTCALL_CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}
