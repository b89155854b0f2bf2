//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

var rounds = flag.Int("start-rounds", 1, "how many pods of each form TestPodStart starts")

// sharedProcesses names a form whose hook needs no copy of the program.
const sharedProcesses = "shareProcessNamespace"

// otherNative names a form without lastcall, whose native sidecar has no hook and no probe: what any native sidecar costs.
const otherNative = "native, sidecar of another"

// bareForm is the pod without lastcall.
const bareForm = "bare"

// TestPodStart measures one pod alone from its creation to Ready, each form of the sidecar in turn, and prints the medians as
// a table of Markdown. What the sidecar sets up itself must not cost one of the kubelet's looks, as an init container does.
func TestPodStart(t *testing.T) {
	n := newNamespace(t, nil)
	forms := []map[string]string{{"lastcall.dev/inject": "false"}}
	for _, sidecar := range []string{"native", "classic"} {
		for _, capture := range []string{"init", "sidecar"} {
			forms = append(forms, map[string]string{"lastcall.dev/sidecar": sidecar, "lastcall.dev/capture": capture})
		}
	}
	forms = append(forms, map[string]string{"lastcall.dev/sidecar": "classic", "lastcall.dev/capture": "sidecar", sharedProcesses: "true"})
	forms = append(forms, map[string]string{"lastcall.dev/inject": "false", otherNative: "true"})
	took := map[string][]time.Duration{}
	var names []string
	for round := range *rounds {
		for _, form := range forms {
			name := bareForm
			if form["lastcall.dev/inject"] == "" {
				name = form["lastcall.dev/sidecar"] + ", " + form["lastcall.dev/capture"]
			}
			if form[otherNative] != "" {
				name = otherNative
			}
			if form[sharedProcesses] != "" {
				name += ", " + sharedProcesses
			}
			if round == 0 {
				names = append(names, name)
			}
			took[name] = append(took[name], n.startOne(form))
		}
	}
	bare := median(took[bareForm])
	var table strings.Builder
	table.WriteString("| sidecar, what sets the rules | creation to Ready, median | from | to | more than bare |\n|---|---|---|---|---|\n")
	for _, name := range names {
		m := median(took[name])
		fmt.Fprintf(&table, "| %s | %.2f s | %.2f s | %.2f s | %.2f s |\n", name, m.Seconds(), slices.Min(took[name]).Seconds(), slices.Max(took[name]).Seconds(), (m - bare).Seconds())
	}
	t.Logf("%d pods of each form, in turn:\n\n%s", *rounds, table.String())
	if *rounds < 5 { // the kubelet's steps have their chance, which only a median of some pods evens out
		return
	}
	const ownClassic = "classic, sidecar"
	if own, shared := median(took[ownClassic]), median(took[ownClassic+", "+sharedProcesses]); own > shared+300*time.Millisecond {
		t.Errorf("classic: %v, and %v with shareProcessNamespace: the copy of the hook's program costs more than 0.3 s", own, shared)
	}
	if own, init := median(took["native, sidecar"]), median(took["native, init"]); own+500*time.Millisecond > init {
		t.Errorf("native: %v with its own rules, %v with an init container: want at least half a second less", own, init)
	}
}

// startOne returns how long one pod takes to become ready, and deletes it.
func (n *namespace) startOne(annotations map[string]string) time.Duration {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.T.Context(), patience)
	defer cancel()
	pods := client.CoreV1().Pods(n.Name)
	const name = "start"
	shared := annotations[sharedProcesses] != ""
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: maps.Clone(annotations)},
		Spec: corev1.PodSpec{ShareProcessNamespace: &shared, Containers: []corev1.Container{{
			Name: "app", Image: builtIn + ":" + *tag, ImagePullPolicy: corev1.PullNever,
			Args:  []string{"httpbin", "--listen", ":8080", "--on-term", "exit"},
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/get", Port: intstr.FromInt32(8080)}}},
		}}},
	}
	if annotations[otherNative] != "" {
		delete(pod.Annotations, otherNative)
		always, other := corev1.ContainerRestartPolicyAlways, pod.Spec.Containers[0]
		other.Name, other.Args, other.Ports, other.ReadinessProbe, other.RestartPolicy = "other", []string{"httpbin", "--listen", ":8081"}, nil, nil, &always
		pod.Spec.InitContainers = []corev1.Container{other}
	}
	// The kubelet looks each second, and the pod before this one has ended at a look: start at any time between two.
	time.Sleep(rand.N(time.Second))
	began := time.Now()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		n.T.Fatal(err)
	}
	for {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			n.T.Fatalf("%v: the pod was not ready within %v: %v", annotations, patience, err)
		}
		if nodetest.IsReady(p) {
			if annotations["lastcall.dev/inject"] == "" && !isInjected(p) {
				n.T.Fatalf("%v was not injected", annotations)
			}
			break
		}
		time.Sleep(10 * time.Millisecond) // the error of the result
	}
	took := time.Since(began)
	// The next one must start on an idle node.
	second := int64(1)
	must.Do(n.T, pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &second}))
	n.Until("lost its pod", func() error {
		if _, err := pods.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the pod is there: %v", err)
		}
		return nil
	})
	return took
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
