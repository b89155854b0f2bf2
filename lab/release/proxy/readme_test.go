package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// TestReadme does what README.md says, word for word, as a user who has Go and nothing else of the project: in empty
// folders, with the working tree as the released version. TestReadme of lab/e2e does what it says for clusters.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	must.Do(t, err)
	bin := t.TempDir()
	begin := func(t *testing.T, title string) (u user) {
		u.importer = newImporter(t, "go")
		u.env = []string{"GOBIN=" + bin, "PATH=" + bin + ":" + os.Getenv("PATH")}
		if os.Getenv("COLD") != "" { // as on a machine that has compiled nothing, docs/releasing.md
			u.cache = filepath.Join(t.TempDir(), "modules")
			u.env = append(u.env, "GOCACHE="+filepath.Join(t.TempDir(), "build"))
		}
		_, section, found := strings.Cut(string(readme), "\n## "+title+"\n")
		if !found {
			t.Fatalf("README.md has no section %q", title)
		}
		u.section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.Lines(u.section) {
			if command, ok := strings.CutPrefix(line, "    "); ok {
				u.commands = append(u.commands, strings.TrimSpace(command))
			}
		}
		from := time.Now()
		t.Cleanup(func() { t.Logf("%s: %.0f s, %d commands", title, time.Since(from).Seconds(), len(u.commands)) })
		return u
	}
	t.Run("A Go program", func(t *testing.T) {
		u := begin(t, "A Go program")
		_, code, _ := strings.Cut(u.section, "```go\n")
		code, _, _ = strings.Cut(code, "```")
		u.write(t, "go.mod", "module example.com/server\n\ngo 1.25.0\n")
		u.types(t, u.commands[0])
		imports := "\"context\"\n\"log\"\n\"net/http\"\n\n\"github.com/lastcall-dev/lastcall\""
		body := "server := &http.Server{Addr: \"127.0.0.1:0\"}\n" + code
		u.write(t, "main.go", "package main\n\nimport (\n"+imports+"\n)\n\nfunc main() {\n"+body+"}\n")
		u.types(t, "go build -o server .")
		u.check(t, []string{modulePath})
		if len(u.commands) != 1 {
			t.Errorf("%d commands, want 1", len(u.commands))
		}
	})
	t.Run("One machine", func(t *testing.T) {
		u := begin(t, "One machine")
		u.types(t, u.commands[0])
		u.runs(t, u.commands[1])
	})
	t.Run("Only look", func(t *testing.T) {
		u := begin(t, "Only look")
		u.types(t, u.commands[0])
		u.deploys(t)
		if out := u.types(t, u.commands[1]); !strings.Contains(out, "LC029") {
			t.Errorf("lint does not find that the shell keeps SIGTERM:\n%s", out)
		}
		if out := u.types(t, u.commands[2]); !strings.Contains(out, "Deployment web") {
			t.Errorf("plan:\n%s", out)
		}
		if !strings.HasPrefix(u.commands[3], "lastcallctl observe ") || len(u.commands) != 4 {
			t.Errorf("%q: want observe last, which needs a cluster", u.commands)
		}
		if out := u.types(t, "lastcallctl --version"); strings.TrimSpace(out) != u.released {
			t.Errorf("--version: %q, want %s", out, u.released)
		}
	})
	// It does not repeat make build, which .ci/run does first, but uses the programs that the sections above install.
	t.Run("From a clone", func(t *testing.T) {
		u := begin(t, "From a clone")
		build := exec.CommandContext(t.Context(), "sh", "-c", u.commands[0]+" -n")
		build.Dir = "../../.."
		out, err := build.CombinedOutput()
		must.Do(t, err)
		for _, program := range []string{"./cmd/lastcall\n", "./kube/cmd/lastcallctl "} {
			if !strings.Contains(string(out), " -o bin/ "+program) {
				t.Errorf("make build does not build %q into bin:\n%s", program, out)
			}
		}
		must.Do(t, os.Symlink(bin, filepath.Join(u.dir, "bin")))
		u.runs(t, u.commands[1])
		u.deploys(t)
		if out := u.types(t, u.commands[2]); !strings.Contains(out, "LC029") {
			t.Errorf("lint does not find that the shell keeps SIGTERM:\n%s", out)
		}
		if want := []string{"make build", u.commands[1], u.commands[2], "make test"}; !slices.Equal(u.commands, want) {
			t.Errorf("%q: want make build, two commands of its programs, and make test", u.commands)
		}
	})
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: app, image: python, command: [sh, -c, gunicorn web:app], ports: [{containerPort: 8000}]}
`

// user is a person who reads a section.
type user struct {
	importer
	section  string
	commands []string
}

// types runs a command line and returns its output. A command that reports findings may exit with 1.
func (u *user) types(t *testing.T, line string) string {
	t.Helper()
	out, err := u.command(t, "sh", "-c", line).CombinedOutput()
	var exit *exec.ExitError
	findings := errors.As(err, &exit) && exit.ExitCode() == 1 && strings.Contains(line, "lastcallctl ")
	if err != nil && !findings {
		t.Fatalf("$ %s: %v\n%s", line, err, out)
	}
	return string(out)
}

// deploys writes a manifest with a shell that keeps SIGTERM.
func (u *user) deploys(t *testing.T) {
	t.Helper()
	must.Do(t, os.Mkdir(filepath.Join(u.dir, "deploy"), 0o755))
	u.write(t, "deploy/web.yaml", deployment)
}

// runs types a command line of lastcall run, and ends it when its app answers.
func (u *user) runs(t *testing.T, line string) {
	t.Helper()
	line = strings.Replace(line, ":8000=", "127.0.0.1:18431=", 1)
	cmd := u.command(t, "sh", "-c", "exec "+line)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Do(t, cmd.Start())
	polltest.NoError(t, func() error {
		resp, err := http.Get("http://127.0.0.1:18431/")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "verdict=clean") {
		t.Errorf("%s: %v\n%s", line, err, &out)
	}
}
