package service

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// goBuild builds a static program.
func goBuild(t *testing.T, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-race=false", "-o", program, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// webImage is an image with testdata/web as its program, as docker save writes it.
func webImage(t *testing.T) string {
	t.Helper()
	web, err := os.ReadFile(goBuild(t, "./testdata/web"))
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{
		Entrypoint: []string{"web", "--port", "8080"}, Cmd: []string{"from the image"}, WorkingDir: "/work", StopSignal: "SIGQUIT",
		Env: []string{"PATH=/app", "GREETING=from the image", "LISTEN=:8080"}, ExposedPorts: map[string]struct{}{"8080/tcp": {}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range []map[string][]byte{{"gone": nil, "run/.keep": nil}, {"app/web": web, ".wh.gone": nil}} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, content := range files {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "web.tar")
	if err := tarball.WriteToFile(file, name.MustParseReference("web:test"), img); err != nil {
		t.Fatal(err)
	}
	return file
}

// needUserNamespaces skips a test where they are not permitted.
func needUserNamespaces(t *testing.T) {
	t.Helper()
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
	if err := cmd.Run(); err != nil {
		t.Skipf("no user namespaces: %v", err)
	}
}

// An image runs with its own command, files, variables, working folder and stop signal, as far as the manifest leaves them;
// its preStop hook runs among its files.
func TestImage(t *testing.T) {
	needUserNamespaces(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	request, err := load.ParseRequest("GET /")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Image: webImage(t), Requests: []load.Request{request}, Strategies: []string{AsIs}, Propagation: Span{0, 0}, Self: goBuild(t, "../cmd/rehearse"),
		Pod: Pod{Grace: 5 * time.Second, Args: []string{"from the manifest"}, Env: []string{"MANIFEST=yes"}, PreStop: &Hook{Exec: []string{"web", "hook"}}},
	}
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if row := res.Rows[0]; row.Requests < 10 || row.EndedBy() != "exit 0" || row.Runs[0].HookError != "" {
		t.Errorf("%+v", row)
	}
	if left, err := filepath.Glob(filepath.Join(temporary, "lastcall-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}

	o.Command = "web --port {port}" // the image has no shell
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "/bin/sh") {
		t.Errorf("with a command: %v", err)
	}
	o.Image = "absent.tar"
	var option strategy.OptionError
	if _, err := Run(t.Context(), o); !errors.As(err, &option) || !strings.Contains(err.Error(), "--image: unpack absent.tar: open absent.tar: no such file") {
		t.Errorf("without a file: %v", err)
	}
}

func TestWithPort(t *testing.T) {
	for text, want := range map[string]string{"8080": "{port}", "--listen=:8080": "--listen=:{port}", "18080": "18080", "8080x": "8080x", "http://localhost:8080/": "http://localhost:{port}/"} {
		if got := withPort(text, 8080); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := withPort("0", 0); got != "0" {
		t.Errorf("without a port: %s", got)
	}
}
