//go:build e2e

package e2e

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// lastcallctl is the program that make e2e builds.
const lastcallctl = "../../bin/lastcallctl"

// TestCheck has lastcallctl check look at this cluster, in which all is well.
func TestCheck(t *testing.T) {
	n := newNamespace(t, nil)
	n.start(app{name: "web"})
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
		"there are Linux nodes": false, "the controller is running": false,
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
	}
}
