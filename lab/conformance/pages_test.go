package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/peers"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

var screenshots = flag.String("screenshots", "", "folder for pictures of the pages")

// ctlProgram builds lastcallctl once for all tests.
var ctlProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "lastcallctl")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", path, "./kube/cmd/lastcallctl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build lastcallctl: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return path, nil
})

// lastcallctl is a run of the program that the test ends.
func lastcallctl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := ctlProgram()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, program, args...)
}

func TestPlanPage(t *testing.T) {
	t.Parallel()
	command := lastcallctl(t, "plan", "-o", "html", "--as", "as-is,lastcall", "testdata/pages/web.yaml")
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.html")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	openTab(t).examine("plan", "file://"+file, "document.readyState === 'complete'", "How the pods end", "Deployment web", "Grace period 4 s")
}

func TestRehearsalPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rehearsal.html")
	command := lastcallctl(t, "rehearse", "--app", peers.Need(t, "node")+" testdata/pages/server.js {port}", "-f", "testdata/pages/web.yaml",
		"--request", "GET /slow", "--propagation", "0s..1s", "--strategy", "as-is,lastcall", "--html", file)
	out, err := command.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Fatalf("%v, want exit code 1, since the server loses requests:\n%s", err, out)
	}
	openTab(t).examine("rehearsal", "file://"+file, "document.readyState === 'complete'", "Rehearsal of Deployment web", "as-is lost", "What would have saved it")
}

// TestClusterPage shows the rollout of a node's Deployment that testdata/pages/cluster.json has recorded.
func TestClusterPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/pages/cluster.json")
	if err != nil {
		t.Fatal(err)
	}
	var r outcome.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cluster.html")
	if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	texts := []string{"Rehearsal of deployment shop/web", "restart lost", "What would have saved it", "the likeliest first: web-", "Pods that ended", "New pods"}
	for _, p := range r.Rows[0].Runs[0].Pods {
		texts = append(texts, p.Name)
	}
	openTab(t).examine("cluster", "file://"+file, "document.readyState === 'complete'", texts...)
}

// TestLivePage watches an agent through its drain: a request delays the exit, and the page shows it.
func TestLivePage(t *testing.T) {
	t.Parallel()
	program := buildAgent(t)
	answer := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer app.Close()
	inbound, admin, status := freeAddr(t), freeAddr(t), freeAddr(t)
	agent := startProgram(t, admin, program, "agent", "--inbound", inbound.String()+"="+app.Listener.Addr().String(), "--admin-address", admin.String(),
		"--status-address", "127.0.0.1", "--status-port", fmt.Sprint(status.Port), "--termination-log", "",
		"--minimum-drain", "1s", "--quiet-time", "0s")
	url := "http://" + admin.String() + "/live"
	b := openTab(t)
	b.examine("live", url, "document.querySelector('[aria-current]')?.innerText === 'serving'", "no termination", "What would delay the exit", "nothing")

	requested := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + inbound.String() + "/report?of=<b>2026</b>")
		if err == nil {
			_ = response.Body.Close()
		}
		requested <- err
	}()
	b.await("document.getElementById('holding').innerText.includes('GET /report')")
	if err := agent.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.examine("live-waiting", url, "document.querySelector('[aria-current]')?.innerText === 'waiting'", "last call in", "SIGKILL in", "What delays the exit", "GET /report?of=<b>2026</b>")
	close(answer)
	b.await("document.getElementById('link').innerText === 'the agent has ended'")
	b.contains("the drain is complete")
	if err := <-requested; err != nil {
		t.Error(err)
	}
}
