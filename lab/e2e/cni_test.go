//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// cniRelease is the namespace of the network plugin's own release of the chart: that of the webhook admits no such pods.
const cniRelease = "lastcall-node"

// plugin is the network plugin on the node, for all tests that need it at once.
var plugin struct {
	sync.Mutex
	users int
}

// nodePlugin has the chart install the network plugin until the end of the test.
func nodePlugin(t *testing.T) {
	t.Helper()
	plugin.Lock()
	defer plugin.Unlock()
	if plugin.users == 0 {
		must.Do(t, installPlugin())
	}
	plugin.users++
	t.Cleanup(func() {
		plugin.Lock()
		defer plugin.Unlock()
		if plugin.users--; plugin.users > 0 {
			return
		}
		if err := removePlugin(); err != nil {
			t.Error(err)
		}
	})
}

// nodeFile is a file of the cluster's folder.
func nodeFile(elements ...string) string {
	return filepath.Join(append([]string{filepath.Dir(os.Getenv("KUBECONFIG"))}, elements...)...)
}

// networkList is the node's network configuration, in one layout.
func networkList() (string, error) {
	text, err := os.ReadFile(nodeFile("cni", "10-pods.conflist"))
	if err != nil {
		return "", err
	}
	var list any
	if err := json.Unmarshal(text, &list); err != nil {
		return "", err
	}
	text, err = json.Marshal(list)
	return string(text), err
}

func cniManifests() (string, error) {
	return nodetest.Chart("../..", *tag, cniRelease, "webhook.enabled=false,cni.enabled=true",
		"cni.binDir="+nodeFile("plugins")+",cni.confDir="+nodeFile("cni"))
}

func installPlugin() error {
	manifests, err := cniManifests()
	if err == nil {
		err = nodetest.Release(cniRelease, "privileged", manifests)
	}
	if err != nil {
		return err
	}
	_, err = nodetest.Kubectl("", "rollout", "status", "daemonset", "lastcall-cni", "--namespace", cniRelease, "--timeout", patience.String())
	return err
}

// removePlugin deletes the release, as helm uninstall does, and waits until its pods are gone.
func removePlugin() error {
	manifests, err := cniManifests()
	if err != nil {
		return err
	}
	if _, err := nodetest.Kubectl(manifests, "delete", "--namespace", cniRelease, "--wait=true", "--cascade=background", "-f", "-"); err != nil {
		return err
	}
	return nodetest.Await(patience, "lost the pods of "+cniRelease, func() error {
		list, err := client.CoreV1().Pods(cniRelease).List(context.Background(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are there", len(list.Items))
		}
		return err
	})
}

// A pod without any capability is captured by the node, keeps every request through rollouts of itself and of the plugin,
// and the node is as before afterwards.
func TestNetworkPlugin(t *testing.T) {
	before, err := networkList()
	must.Do(t, err)
	t.Run("without the plugin", func(t *testing.T) {
		n := newNamespace(t, nil)
		n.Apply(app{name: "web", annotations: map[string]string{"lastcall.dev/capture": "cni"}}.manifest())
		n.Until("reported that it is not captured", func() error {
			for _, p := range n.pods("web") {
				for _, c := range p.Status.ContainerStatuses {
					if c.State.Running != nil {
						t.Fatalf("container %s runs", c.Name)
					}
				}
			}
			events := n.Kubectl("get", "events", "--field-selector", "reason=NotCaptured", "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(events, "DaemonSet lastcall-cni") {
				return fmt.Errorf("events %q", events)
			}
			return nil
		})
	})
	t.Run("with the plugin", func(t *testing.T) {
		nodePlugin(t)
		during, err := networkList()
		if err != nil || !strings.Contains(during, `"type":"lastcall-cni"`) {
			t.Fatalf("the node's network configuration is %s, %v", during, err)
		}
		for _, form := range []string{"native", "classic"} {
			n := newNamespace(t, nil)
			n.Apply(app{name: "web", replicas: 2, annotations: map[string]string{"lastcall.dev/capture": "cni", "lastcall.dev/sidecar": form}}.manifest())
			n.Available("web")
			for _, p := range n.pods("web") {
				for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
					if c.SecurityContext != nil && c.SecurityContext.Capabilities != nil && len(c.SecurityContext.Capabilities.Add) > 0 {
						t.Errorf("%s: container %s has %v", form, c.Name, c.SecurityContext.Capabilities.Add)
					}
				}
				if restarts := restartsOf(p); restarts > 0 {
					t.Errorf("%s: %d restarts", form, restarts)
				}
			}
			url := n.gateway("web")
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			end := begin(ctx, url, 100)
			// The plugin is replaced while pods are made.
			if _, err := nodetest.Kubectl("", "rollout", "restart", "daemonset", "lastcall-cni", "--namespace", cniRelease); err != nil {
				t.Error(err)
			}
			rollouts := n.restartUntil(func(int) bool { return ctx.Err() != nil }, 0, "web")
			stop()
			r := end()
			t.Logf("%s: %v; %d rollouts of %.2f s", form, r, len(rollouts), mean(rollouts).Seconds())
			if r.Failed() > 0 || r.Requests < 1000 {
				t.Errorf("%s: %v; want none of at least 1000", form, r)
			}
			n.Until("reported a drain", func() error {
				if events := n.Kubectl("get", "events", "--field-selector", "reason=Drained", "-o", "name"); events == "" {
					return fmt.Errorf("no Event")
				}
				return nil
			})
		}
		if _, err := nodetest.Kubectl("", "rollout", "status", "daemonset", "lastcall-cni", "--namespace", cniRelease, "--timeout", patience.String()); err != nil {
			t.Error(err)
		}
		if now, err := networkList(); now != during {
			t.Errorf("after an upgrade the node's network configuration is %s, %v", now, err)
		}
	})
	if after, err := networkList(); after != before || err != nil {
		t.Errorf("after the removal the node's network configuration is\n%s, %v\nwant\n%s", after, err, before)
	}
}

func restartsOf(p corev1.Pod) (n int32) {
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		n += s.RestartCount
	}
	return n
}
