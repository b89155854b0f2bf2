package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lastcall-dev/lastcall/"

// downwards is the way of a termination through the folders: each may import those that come after it, never one
// before it. A folder below a listed one (internal/pipe/x) belongs to that one.
var downwards = []string{
	"kube/cmd", "cmd", "rehearsal/cmd", "gateway/cmd", // flags and wiring
	"rehearsal/command",                                       // the commands of a rehearsal, which two programs mount
	"internal/cli",                                            // what their command lines have in common
	"rehearsal",                                               // one machine as a cluster
	"kube/webhook", "kube/events", "kube/inject", "kube/lint", // pods that get a sidecar; their timers; how they ended
	"gateway/ingress", "gateway", // the reference gateway of the experiment
	"internal/agent",                                                   // composes all below as PID 1
	"internal/envoy", "internal/pipe", "internal/sockets", "httpdrain", // the data planes
	"internal/admin",                       // Envoy's admin API over any of them
	"internal/process", "internal/capture", // supervision; redirection
	"internal/hotrestart",  // a new process takes over the sockets; systemd notifications
	"internal/certificate", // TLS certificates, and their files
	"internal/sockdiag",    // the kernel's socket table
	"internal/meshconfig",  // Istio's ProxyConfig
	"internal/timers",      // the variables that set a termination's timers
	"internal/tcp",         // listeners
	"internal/wire",        // parsers: no sockets, no goroutines
	"internal/sideport",    // the small HTTP servers beside the traffic
	"internal/accesslog",   // Envoy's access log lines and local replies
	"internal/logs",        // what is logged, without waiting for its reader
	"drain",                // the state machine: imports nothing of the project
}

// beside is what no binary contains: tests' and builders' own. It may import what it likes; tests may import it.
var beside = []string{"lab", "kube/podgen", "internal/architecture", "internal/nettest", "internal/load", "internal/peers", "internal/programtest", "internal/leak"}

// heavy is what the binary for pods must not carry: it would cost more memory than all of its own work.
var heavy = []string{"k8s.io/", "sigs.k8s.io/controller-runtime", "net/http/httputil", "github.com/google/go-containerregistry", "testing"}

// pkg is what is asked of go list.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	// Go's test cache sees what a test opens, not what go list does: without this walk a cached verdict would outlive
	// the imports that it was about.
	for _, folder := range []string{"../.."} {
		err := filepath.WalkDir(folder, func(string, fs.DirEntry, error) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	args = append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)
	command := exec.Command("go", args...)
	command.Dir = "../.."
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &complaint)
	}
	var all []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("read what go %s says: %v", strings.Join(args, " "), err)
		}
		all = append(all, p)
	}
}

// place is the index of the folder in folders that the import path lies in, or -1.
func place(folders []string, path string) int {
	folder := strings.TrimPrefix(path, module)
	return slices.IndexFunc(folders, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range list(t, "./...", "./gateway/...", "./rehearsal/...", "./kube/...", "./lab/...") {
		if place(beside, p.ImportPath) >= 0 {
			continue
		}
		from := place(downwards, p.ImportPath)
		if from < 0 {
			t.Errorf("%s has no place yet: put it where it belongs in the list at the head of this test", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			switch to := place(downwards, imported); {
			case place(beside, imported) >= 0:
				t.Errorf("%s imports %s, which is for tests and builds only", p.ImportPath, imported)
			case to >= 0 && to < from:
				t.Errorf("%s imports %s, which lies above it", p.ImportPath, imported)
			}
		}
	}
}

func TestPodsBinaryIsLight(t *testing.T) { without(t, "./cmd/lastcall", heavy...) }

// The image with the webhook's key, and with rights in the cluster, holds the webhook and the Events alone.
func TestControllerHoldsOnlyItsOwn(t *testing.T) {
	without(t, "./kube/cmd/lastcall-controller", module+"gateway", module+"rehearsal", module+"internal/pipe", module+"internal/agent",
		module+"internal/envoy", module+"internal/process", "testing")
}

// Without Kubernetes' clients a rehearsal compiles in seconds.
func TestRehearseIsLight(t *testing.T) {
	without(t, "./rehearsal/cmd/rehearse", "k8s.io/", "sigs.k8s.io/", "istio.io/", "testing")
}

// without wants a binary to contain none of the packages, nor what is below them.
func without(t *testing.T, binary string, packages ...string) {
	t.Helper()
	for _, p := range list(t, "-deps", binary) {
		for _, path := range packages {
			if p.ImportPath == path || strings.HasPrefix(p.ImportPath, strings.TrimSuffix(path, "/")+"/") {
				t.Errorf("%s contains %s", binary, p.ImportPath)
			}
		}
	}
}
