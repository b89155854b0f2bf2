//go:build e2e

package e2e

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// reader types a document's commands as written, in the checkout. Its own are only the registry, the namespace and the
// version that the commands before have printed.
type reader struct {
	*namespace
	registry, version string
}

// installedAgain installs lastcall at the end of a test that has removed it.
func installedAgain(t *testing.T) {
	t.Cleanup(func() {
		if err := install(); err != nil {
			t.Error(err)
		}
	})
}

// newReader gives a test a cluster without lastcall, and a registry.
func newReader(t *testing.T, ns string) *reader {
	t.Helper()
	n := existing(t, ns)
	n.Kubectl("delete", "namespace", system, "--ignore-not-found")
	for _, kind := range []string{"clusterrole,clusterrolebinding", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "ingressclass"} {
		n.Kubectl("delete", kind, "--selector", "app.kubernetes.io/instance=lastcall", "--ignore-not-found")
	}
	return &reader{n, startRegistry(t) + "/team", *tag}
}

// startRegistry runs a registry on this machine, which is the node as well. Nodes reach one on loopback without TLS.
func startRegistry(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("../../bin/crane", "registry", "serve", "--address", "127.0.0.1:0")
	out, err := cmd.StderrPipe()
	must.Do(t, err)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a registry (make e2e builds it): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, port, found := strings.Cut(strings.TrimSpace(line), "serving on port ")
	if !found {
		t.Fatalf("the registry reports %q: %v", line, err)
	}
	return "127.0.0.1:" + port
}

// run types the commands. The shell has no variables of make's, whose tests these are.
func (r *reader) run(commands []string) (out string) {
	r.T.Helper()
	var env []string
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !strings.HasPrefix(name, "MAKE") && name != "MFLAGS" {
			env = append(env, variable)
		}
	}
	bin, err := filepath.Abs("../../bin")
	must.Do(r.T, err)
	node := filepath.Dir(os.Getenv("KUBECONFIG")) // the cluster's folder
	env = append(env, "PATH="+bin+":"+os.Getenv("PATH"), "CONTAINERD_ADDRESS="+filepath.Join(node, "run/containerd.sock"))
	for _, command := range commands {
		command = strings.NewReplacer("registry.example.com/team", r.registry, "NAMESPACE", r.Name, "VERSION", r.version).Replace(command)
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = "../..", env
		text, err := cmd.CombinedOutput()
		r.T.Logf("$ %s\n%s", command, text)
		must.Do(r.T, err)
		out += string(text)
	}
	return out
}

// indented are the indented lines of a document's section.
func indented(t *testing.T, file, title string) (out []string) {
	t.Helper()
	_, section, found := strings.Cut(document(t, file), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			out = append(out, strings.TrimSpace(command))
		}
	}
	if !found || len(out) == 0 {
		t.Fatalf("%s has no section %q with commands", file, title)
	}
	return out
}

func document(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Do(t, err)
	return string(text)
}

// hasSidecar waits for the pod that follows before, and wants it injected with an image of the registry.
func (r *reader) hasSidecar(image string) {
	r.T.Helper()
	r.Available("web")
	p := r.pods("web")[0]
	if !isInjected(&p) {
		r.T.Fatalf("the pod has no sidecar: %v", p.Annotations)
	}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		if c.Name == "lastcall" && !strings.HasPrefix(c.Image, image) {
			r.T.Errorf("the sidecar's image is %s, want %s…", c.Image, image)
		}
	}
}

// TestReadme does what the README says for a cluster, word for word but for the registry of the releases, on one without
// lastcall where an app runs already. The node pulls the images from a registry that it did not know.
func TestReadme(t *testing.T) {
	commands := indented(t, "../../README.md", "Kubernetes")
	if len(commands) > 3 {
		t.Errorf("the README needs %d commands, want at most 3", len(commands))
	}
	shown := regexp.MustCompile("`(kubectl get events [^`]*)`").FindStringSubmatch(document(t, "../../README.md"))
	if shown == nil {
		t.Fatal("the README has no command that shows how pods ended")
	}
	installedAgain(t)
	r := newReader(t, "default")
	t.Cleanup(func() {
		r.Kubectl("delete", "deployment,service", "web", "--ignore-not-found")
		r.Kubectl("label", "namespace", "default", "lastcall.dev/inject-")
	})
	before := r.start(app{name: "web"})
	if isInjected(&before) {
		t.Fatal("injected before anything was done")
	}
	host, _, _ := strings.Cut(r.registry, "/")
	r.run([]string{"make push chart REGISTRY=registry.example.com/team", "helm push --plain-http dist/lastcall.tgz oci://" + host + "/charts"})
	released := "oci://ghcr.io/lastcall-dev/charts/lastcall"
	if !strings.Contains(commands[0], released) {
		t.Fatalf("%s: want the chart at %s", commands[0], released)
	}
	commands[0] = strings.Replace(commands[0], released, "oci://"+host+"/charts/lastcall --plain-http --devel --set registry="+r.registry, 1)
	r.run(commands)
	r.Available("web")
	r.gone(before)
	r.hasSidecar(r.registry + "/lastcall:")
	p := r.pods("web")[0]
	answered := r.begin(p, "/delay/8")
	r.Kubectl("rollout", "restart", "deployment")
	wantOK(t, <-answered)
	r.Until("there was an Event about the pod's end", func() error {
		out, err := exec.Command("sh", "-c", shown[1]).CombinedOutput()
		if err == nil && !strings.Contains(string(out), p.Name) {
			err = errors.New(string(out))
		}
		return err
	})
	_ = client.CoreV1().Events("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
}

// TestInstallGuide types the commands of docs/install.md, one way of installing after the other.
func TestInstallGuide(t *testing.T) {
	installedAgain(t)
	const guide = "../../docs/install.md"
	uninstall := indented(t, guide, "Uninstall")
	for _, way := range []struct {
		title string
		image string // of the sidecar, REGISTRY being the test's own
		undo  []string
	}{
		{"Manifests", "REGISTRY/lastcall@sha256:", uninstall[:1]},
		{"Helm", "REGISTRY/lastcall:", uninstall[1:]},
		{"Without a registry", "localhost/lastcall:", uninstall[:1]},
	} {
		t.Run(way.title, func(t *testing.T) {
			r := newReader(t, newNamespace(t, map[string]string{"test": "guide"}).Name)
			before := r.start(app{name: "web"})
			r.run(indented(t, guide, way.title))
			if way.title == "Without a registry" { // the rest is as in the others
				r.run(indented(t, guide, "Manifests")[2:])
			}
			r.Available("web")
			r.gone(before)
			r.hasSidecar(strings.Replace(way.image, "REGISTRY", r.registry, 1))
			r.run(way.undo)
		})
	}
	t.Run("Without a webhook", func(t *testing.T) {
		r := newReader(t, newNamespace(t, map[string]string{"test": "guide"}).Name)
		before := r.start(app{name: "web"})
		r.run(indented(t, guide, "Manifests")[:1])
		r.run(indented(t, guide, "Without a webhook"))
		r.Available("web")
		r.gone(before)
		r.hasSidecar(r.registry + "/lastcall:" + r.version)
	})
}
