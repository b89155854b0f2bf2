//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/top"
)

// TestTop has lastcallctl top show a pod with a request in flight that serves, drains and has gone.
func TestTop(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, nil)
	p := n.start(app{name: "web"})
	shows := func(what string, is func(top.Pod) bool) {
		t.Helper()
		n.Until("showed that the pod "+what, func() error {
			out, err := exec.Command(lastcallctl, "top", n.Name+"/web", "-o", "json").Output()
			if err != nil {
				return err
			}
			var all struct{ Pods []top.Pod }
			if err := json.Unmarshal(out, &all); err != nil {
				return err
			}
			for _, one := range all.Pods {
				if one.Name == p.Name && is(one) {
					return nil
				}
			}
			return fmt.Errorf("%s", out)
		})
	}
	asked := n.begin(p, "/delay/12")
	shows("is busy", func(p top.Pod) bool {
		return p.State != nil && p.State.Phase == "serving" && p.State.Host == p.Name && len(p.State.Holding) == 1
	})
	n.Kubectl("delete", "pod", p.Name, "--wait=false")
	shows("drains", func(p top.Pod) bool {
		return p.State != nil && p.State.Drain != nil && p.State.Drain.Limit != nil && p.State.Drain.Kill > *p.State.Drain.Limit
	})
	wantOK(t, <-asked)
	n.gone(p)
}
