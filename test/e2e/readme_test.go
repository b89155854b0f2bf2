//go:build e2e

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReadme does what the README tells a newcomer to do, word for word, on a cluster without lastcall where an app runs
// already.
func TestReadme(t *testing.T) {
	commands := readmeCommands(t)
	s, n := &namespace{t, system}, &namespace{t, "default"}
	s.kubectl("delete", "-k", "../../deploy/kustomize", "--ignore-not-found")
	t.Cleanup(func() {
		n.kubectl("delete", "deployment,service", "web", "--ignore-not-found")
		n.kubectl("label", "namespace", "default", "lastcall.dev/inject-")
		if err := install(); err != nil {
			t.Error(err)
		}
	})
	before := n.start(app{name: "web"})
	if isInjected(&before) {
		t.Fatal("injected before anything was done")
	}
	for _, command := range commands {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = "../.."
		out, err := cmd.CombinedOutput()
		t.Logf("$ %s\n%s", command, out)
		if err != nil {
			t.Fatal(err)
		}
	}
	n.available("web")
	n.gone(before)
	p := n.pods("web")[0]
	if !isInjected(&p) {
		t.Fatalf("the pod has no sidecar: %v", p.Annotations)
	}
	asked := n.begin(p, "/delay/8")
	n.kubectl("rollout", "restart", "deployment")
	wantOK(t, <-asked)
	n.until("said how the pod went", func() error {
		out, err := exec.Command("sh", "-c", commands[len(commands)-1]).CombinedOutput()
		if err == nil && !strings.Contains(string(out), p.Name) {
			err = errors.New(string(out))
		}
		return err
	})
	_ = client.CoreV1().Events("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
}

// readmeCommands are the indented lines of the README's section on clusters: five at most.
func readmeCommands(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## On your cluster\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			out = append(out, strings.TrimSpace(command))
		}
	}
	if !found || len(out) == 0 || len(out) > 5 {
		t.Fatalf("the README's section has %d commands, want 1 to 5: %q", len(out), out)
	}
	return out
}
