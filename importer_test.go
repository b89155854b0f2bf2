package lastcall

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImporter is a program of another module that imports every public package. Its go.mod and go.sum
// gain x/net and what x/net needs, but nothing that the sidecar or Kubernetes' clients need, and it builds
// on every system.
func TestImporter(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile("go.mod"); err != nil { // so that go test's cache knows of it
		t.Fatal(err)
	}
	const module = "github.com/lastcall-dev/lastcall"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/importer\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n",
		"main.go": `package main

import (
	"context"
	"log"
	"net/http"

	"` + module + `"
	"` + module + `/drain"
	"` + module + `/httpdrain"
)

var _ drain.DataPlane = (*httpdrain.Plane)(nil)

func main() {
	server := &http.Server{Addr: ":8080"}
	if _, err := lastcall.Serve(context.Background(), server); err != nil {
		log.Fatal(err)
	}
}
`,
		"main_test.go": `package main

import (
	_ "` + module + `/drain/draintest"
	_ "` + module + `/drain/planetest"
)
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(env []string, args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		// Offline: all that the program may need is in the module cache, because this test needs it too.
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run(nil, "mod", "tidy")

	want := []string{"golang.org/x/net", "golang.org/x/text"}
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(strings.TrimPrefix(line, "require "))
			if path, version, ok := strings.Cut(line, " "); ok && strings.HasPrefix(version, "v") && path != module && !slices.Contains(got, path) {
				got = append(got, path)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q:\n%s", file, got, want, text)
		}
	}
	for p := range strings.Lines(run(nil, "list", "-deps", "-test", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./...")) {
		p = strings.TrimSpace(p)
		known := slices.ContainsFunc([]string{"", "example.com/importer", module, want[0], want[1]}, func(m string) bool {
			return p == m || m != "" && (strings.HasPrefix(p, m+"/") || strings.HasPrefix(p, m+".test") || strings.HasPrefix(p, m+" ["))
		})
		if !known {
			t.Errorf("the importer needs %s", p)
		}
	}
	if testing.Short() {
		t.Skip("short: the cross-compiled builds are left out")
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		run([]string{"GOOS=" + system, "CGO_ENABLED=0"}, "build", "-o", os.DevNull, ".")
	}
}
