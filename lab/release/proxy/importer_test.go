package main

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// oldest is the oldest version of Go that the library supports.
const oldest = "go1.25.5"

// TestImporter is a program of another module that gets this working tree as a released version, from a proxy of files.
// Its go.mod gains x/net and what x/net needs, but nothing that the sidecar or Kubernetes' clients need; it builds
// with the oldest Go, and finds its packages on every system, for which make lint compiles them. TestReadme builds one
// with this Go.
func TestImporter(t *testing.T) {
	compiler := "go"
	if !testing.Short() {
		cmd := exec.Command("go", "env", "GOROOT")
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "GOTOOLCHAIN="+oldest)
		root, err := cmd.Output()
		if err != nil {
			t.Skipf("%s is unavailable: %v", oldest, err)
		}
		compiler = filepath.Join(strings.TrimSpace(string(root)), "bin", "go")
	}
	t.Run("the library", func(t *testing.T) {
		p := newImporter(t, compiler)
		p.get(t, modulePath, mainHTTP)
		p.check(t, []string{modulePath})
		p.write(t, "main_test.go", testPlanes)
		p.run(t, "mod", "tidy")
		p.check(t, []string{modulePath, "golang.org/x/net", "golang.org/x/text"})
		p.run(t, "vet", "./...")
		for _, system := range []string{"darwin", "windows"} {
			p.env = []string{"GOOS=" + system}
			p.run(t, "list", "-deps", "-test", "./...")
		}
	})
	t.Run("grpcdrain", func(t *testing.T) {
		p := newImporter(t, compiler)
		p.get(t, modulePath+"/grpcdrain", mainGRPC)
		p.check(t, nil)
		p.env = []string{"MINIMUM_DRAIN_DURATION=0s"}
		p.run(t, "run", ".")
	})
}

// shared has the proxy, and a module cache of its own, because the version's content is that of today.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "proxy"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(shared)
	os.Exit(code)
}

// packed puts this working tree into the proxy and returns its version.
var packed = sync.OnceValues(func() (string, error) {
	modules, released, err := published("../../..")
	for _, m := range modules {
		err = errors.Join(err, m.pack(filepath.Join(shared, "proxy"), released))
	}
	return released, err
})

const mainHTTP = `package main

import (
	"context"
	"log"
	"net/http"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
)

var _ drain.DataPlane = (*httpdrain.Plane)(nil)

func main() {
	server := &http.Server{Addr: ":8080"}
	if _, err := lastcall.Serve(context.Background(), server); err != nil {
		log.Fatal(err)
	}
}
`

const testPlanes = `package main

import (
	_ "github.com/lastcall-dev/lastcall/drain/draintest"
	_ "github.com/lastcall-dev/lastcall/drain/planetest"
)
`

const mainGRPC = `package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/grpcdrain"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	server := func(opts ...grpc.ServerOption) *grpc.Server { return grpc.NewServer(opts...) }
	plane := grpcdrain.New(server, grpcdrain.Options{})
	if _, err := lastcall.Serve(ctx, &http.Server{Addr: "127.0.0.1:0"}, lastcall.With(plane)); err != nil {
		log.Fatal(err)
	}
}
`

// importer is the module that imports the library.
type importer struct {
	dir, compiler, proxy, released, cache string
	env                                   []string
}

func newImporter(t *testing.T, compiler string) importer {
	t.Helper()
	released, err := packed()
	must.Do(t, err)
	return importer{dir: t.TempDir(), compiler: compiler, released: released,
		proxy: filepath.Join(shared, "proxy"), cache: filepath.Join(shared, "modules")}
}

// get gets a module for a program that imports it, and builds it.
func (p *importer) get(t *testing.T, module, program string) {
	t.Helper()
	p.write(t, "go.mod", "module example.com/importer\n\ngo 1.25.0\n")
	p.write(t, "main.go", program)
	p.run(t, "get", module+"@"+p.released)
	p.run(t, "mod", "tidy")
	p.run(t, "build", "-o", os.DevNull, ".")
}

func (p *importer) write(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644))
}

func (p *importer) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := p.command(t, p.compiler, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// command is one in the importer's folder, which finds the module there.
func (p *importer) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = p.dir
	downloaded := filepath.Join(env(t, "GOMODCACHE"), "cache", "download")
	cmd.Env = append(os.Environ(),
		"GOPROXY="+fileURL(p.proxy)+","+fileURL(downloaded)+","+env(t, "GOPROXY"), "GOMODCACHE="+p.cache,
		"GOFLAGS=-mod=mod -modcacherw -trimpath", "CGO_ENABLED=0",
		"GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOROOT=")
	cmd.Env = append(cmd.Env, p.env...)
	return cmd
}

// check compares what go.mod requires, and what the importer's other modules could be raised by.
func (p *importer) check(t *testing.T, needs []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "go.mod"))
	must.Do(t, err)
	if !strings.Contains(string(text), "\ngo 1.25.0\n") || !strings.Contains(string(text), modulePath+" "+p.released) {
		t.Errorf("go.mod: want go 1.25.0, and %s %s:\n%s", modulePath, p.released, text)
	}
	if needs == nil {
		return
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "require "))
		if name, version, ok := strings.Cut(line, " "); ok && strings.HasPrefix(version, "v") {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, needs) {
		t.Errorf("go.mod requires %q, want %q:\n%s", got, needs, text)
	}
	for line := range strings.Lines(p.run(t, "list", "-m", "-f", "{{.Path}}", "all")) {
		name := strings.TrimSpace(line)
		if name != modulePath && !strings.HasPrefix(name, "example.com/") && !strings.HasPrefix(name, "golang.org/x/") {
			t.Errorf("the importer's version of %s may be raised", name)
		}
	}
}

func env(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	must.Do(t, err)
	return strings.TrimSpace(string(out))
}

func fileURL(folder string) string {
	folder = filepath.ToSlash(folder)
	if runtime.GOOS == "windows" {
		folder = "/" + folder
	}
	return (&url.URL{Scheme: "file", Path: folder}).String()
}
