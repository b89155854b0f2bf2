//go:build e2e

package e2e

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lastcallctl is what make e2e builds.
const lastcallctl = "../../bin/lastcallctl"

// TestCheck has lastcallctl check and bug-report look at this cluster, in which all is well.
func TestCheck(t *testing.T) {
	n := newNamespace(t, nil)
	p := n.start(app{name: "web"})
	out, err := exec.Command(lastcallctl, "check", "-n", n.Name, "-o", "json").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var result struct {
		Status string
		Groups []struct {
			Name   string
			Checks []struct{ Name, Status, Detail string }
		}
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wanted := map[string]bool{
		"the API server responds": false, "the controller is running": false, "the webhook's service has ready endpoints": false,
		"the certificate authority is valid": false, "the caBundle has the authority that signs": false,
		"the API server reaches the webhook": false, "there are injected pods": false, "sidecars run": false,
	}
	for _, g := range result.Groups {
		for _, c := range g.Checks {
			if _, ok := wanted[c.Name]; ok {
				wanted[c.Name] = c.Status == "ok"
			}
			if c.Status == "error" {
				t.Errorf("%s: %s: %s", g.Name, c.Name, c.Detail)
			}
		}
	}
	for name, ok := range wanted {
		if !ok {
			t.Errorf("not ok: %s", name)
		}
	}

	if out, err := exec.Command(lastcallctl, "check", "-n", n.Name).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}

	file := filepath.Join(t.TempDir(), "report.zip")
	out, err = exec.Command(lastcallctl, "bug-report", "-n", n.Name, "--pod", p.Name, "-f", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	report, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer report.Close()
	folder := "lastcall-bug-report/pods/" + n.Name + "/" + p.Name + "/"
	missing := map[string]string{folder + "pod.yaml": "name: lastcall", folder + "lastcall.log": "serving", folder + "connections.json": "connections", folder + "metrics.txt": "lastcall_", folder + "config.json": "MINIMUM_DRAIN_DURATION"}
	for _, f := range report.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if want, ok := missing[f.Name]; ok && strings.Contains(string(text), want) {
			delete(missing, f.Name)
		}
		if strings.Contains(string(text), "LASTCALL_HOOK_TOKEN") && !strings.Contains(string(text), "REDACTED") {
			t.Errorf("%s shows the hook's token", f.Name)
		}
		if strings.HasSuffix(f.Name, "errors.txt") {
			t.Errorf("errors.txt:\n%s", text)
		}
	}
	for name, want := range missing {
		t.Errorf("%s lacks %q", name, want)
	}
}
