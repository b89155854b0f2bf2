package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lastcall-dev/lastcall/"

// forTests are the folders for tests and builds, which no binary contains. They may import everything; only tests may import them.
var forTests = []string{"lab", "internal/sidecar/architecture", "internal/sidecar/nettest", "internal/sidecar/loadtest",
	"internal/sidecar/peers",
	"internal/sidecar/programtest", "internal/leak", "internal/must", "internal/poll/polltest", "internal/sidecar/logs/logstest", "rehearsal/httpbin/httpbintest"}

// heavy are packages that the binary for pods must not contain: they would cost more memory than all of its own code.
var heavy = []string{"k8s.io/", "sigs.k8s.io/controller-runtime", "net/http/httputil", "github.com/google/go-containerregistry", "testing"}

// ours are the packages of the library and the sidecar.
var ours = []string{"./...", "./cmd/...", "./internal/sidecar/..."}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	// Go's test cache registers the files that a test opens, not those that go list opens: without this walk a cached
	// result would survive a change of the imports.
	if err := filepath.WalkDir("../../..", func(string, fs.DirEntry, error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)
	command := exec.Command("go", args...)
	command.Dir = "../../.."
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	var all []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("parse the output of go %s: %v", strings.Join(args, " "), err)
		}
		all = append(all, p)
	}
}

// place is the index of the folder in folders that the import path lies in, or -1.
func place(folders []string, path string) int {
	folder := strings.TrimPrefix(path, module)
	if path+"/" == module {
		folder = "."
	}
	return slices.IndexFunc(folders, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range list(t, append(ours, "./grpcdrain/...", "./rehearsal/...", "./kube/...", "./lab/...")...) {
		if place(forTests, p.ImportPath) >= 0 {
			continue
		}
		from := place(downwards, p.ImportPath)
		if from < 0 {
			t.Errorf("%s has no place yet: add it to layers in layers_test.go", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			switch to := place(downwards, imported); {
			case place(forTests, imported) >= 0:
				t.Errorf("%s imports %s, which is for tests and builds only", p.ImportPath, imported)
			case to >= 0 && to < from:
				t.Errorf("%s imports %s, which lies above it", p.ImportPath, imported)
			}
		}
	}
}

// The binaries for pods and nodes are light, and hold their own alone.
func TestBinariesAreLight(t *testing.T) {
	kubernetes := []string{"k8s.io/", "sigs.k8s.io/", "istio.io/", "testing"}
	for binary, without := range map[string][]string{
		"./cmd/lastcall": heavy,
		// The image with the webhook's key, and with rights in the cluster, holds the webhook and the Events alone.
		"./kube/cmd/lastcall-controller": {module + "rehearsal", module + "internal/sidecar/pipe", module + "internal/sidecar/agent",
			module + "internal/sidecar/envoy", module + "internal/sidecar/process", "testing"},
		// The observer runs on every node: what Istio's types and the injection register takes 2 MB.
		"./kube/cmd/lastcall-observer": {module + "kube/inject"},
		"./rehearsal/cmd/rehearse":     kubernetes, // without Kubernetes' clients it compiles in seconds
	} {
		for _, p := range list(t, "-deps", binary) {
			for _, path := range without {
				if p.ImportPath == path || strings.HasPrefix(p.ImportPath, strings.TrimSuffix(path, "/")+"/") {
					t.Errorf("%s contains %s", binary, p.ImportPath)
				}
			}
		}
	}
}

// The public packages need the standard library and golang.org/x/net with its own golang.org/x/text alone, on every
// system.
func TestPublicPackagesNeedOnlyXNet(t *testing.T) {
	public := []string{".", "./drain", "./drain/draintest", "./drain/planetest", "./httpdrain"}
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Setenv("GOOS", system)
		for _, p := range list(t, append([]string{"-deps"}, public...)...) {
			if !p.Standard && !strings.HasPrefix(p.ImportPath+"/", module) && !strings.HasPrefix(p.ImportPath, "golang.org/x/net/") && !strings.HasPrefix(p.ImportPath, "golang.org/x/text/") {
				t.Errorf("on %s, the public packages need %s", system, p.ImportPath)
			}
		}
	}
}

// limits are the largest numbers of lines of product code, which may only be lowered. A folder that is too large to
// read in one sitting is split by what it does, not by its length.
var limits = map[string]int{
	".":                     40700, // the library and the sidecar; the aim is 33,000. 800 of them follow databases, 850 workers
	"internal/sidecar/pipe": 7160,
}

// support has the packages that only tests import.
var support = []string{"drain/draintest", "drain/planetest", "internal/sidecar/architecture", "internal/leak", "internal/must", "internal/poll/polltest", "internal/sidecar/loadtest",
	"internal/sidecar/logs/logstest", "internal/sidecar/nettest", "internal/sidecar/peers", "internal/sidecar/programtest", "internal/sidecar/certificate/certificatetest",
	"internal/sidecar/cli/clitest", "internal/wire/stormtest", "internal/wire/http1/http1test", "internal/wire/http2/http2test",
	"internal/wire/ws/wstest"}

func TestSizes(t *testing.T) {
	lines := map[string]int{}
	for _, p := range list(t, ours...) {
		folder := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, strings.TrimSuffix(module, "/")), "/")
		if slices.Contains(support, folder) {
			continue
		}
		files, err := filepath.Glob(filepath.Join("../../..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n := bytes.Count(text, []byte("\n"))
			lines["."] += n
			lines[folder] += n
		}
	}
	for folder, limit := range limits {
		if lines[folder] == 0 || lines[folder] > limit {
			t.Errorf("%s has %d lines of product code; the limit is %d", folder, lines[folder], limit)
		}
	}
	t.Logf("the library and the sidecar have %d lines of product code, internal/sidecar/pipe %d", lines["."], lines["internal/sidecar/pipe"])
}

// ARCHITECTURE.md names Go files by the end of their paths.
func TestNamedFilesExist(t *testing.T) {
	text, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	err = filepath.WalkDir("../../..", func(path string, _ fs.DirEntry, err error) error {
		files = append(files, filepath.ToSlash(path))
		if errors.Is(err, fs.ErrNotExist) { // a folder may vanish meanwhile
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`([\\w./-]+\\.go)`").FindAllSubmatch(text, -1) {
		if !slices.ContainsFunc(files, func(path string) bool { return strings.HasSuffix(path, "/"+string(name[1])) }) {
			t.Errorf("ARCHITECTURE.md: %s: no such file", name[1])
		}
	}
}
