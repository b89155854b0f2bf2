package nodetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/observe"
)

// ObserverNamespace is that of the observer's own release of the chart: that of the webhook admits no such pods.
const ObserverNamespace = "lastcall-observe"

// Observer has the chart of the checkout in the folder root install the observer of an image's tag until the end of the
// test, and waits until it serves.
func Observer(t *testing.T, root, tag string, patience time.Duration) {
	t.Helper()
	ApplyObserver(t, root, tag, "", "")
	_, err := Kubectl("", "rollout", "status", "daemonset", "lastcall-observer",
		"--namespace", ObserverNamespace, "--timeout", patience.String())
	must.Do(t, err)
}

// ApplyObserver is Observer with a text of the manifests replaced. It does not wait.
func ApplyObserver(t *testing.T, root, tag, text, by string) {
	t.Helper()
	manifests, err := Chart(root, tag, ObserverNamespace, "webhook.enabled=false,observer.enabled=true")
	must.Do(t, err)
	if !strings.Contains(manifests, text) {
		t.Fatalf("the chart has no %q", text)
	}
	manifests = strings.Replace(manifests, text, by, 1)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := Kubectl("", "--namespace", ObserverNamespace, "logs", "daemonset/lastcall-observer", "--tail", "50")
			t.Logf("the observer:\n%s", out)
		}
		// With its pod: the next test would follow the log of this one.
		_, _ = Kubectl(manifests, "delete", "--namespace", ObserverNamespace, "--cascade=foreground", "-f", "-")
	})
	must.Do(t, Release(ObserverNamespace, "privileged", manifests))
}

// Observed is the observer's report about the end of a pod.
func (n *Namespace) Observed(p *corev1.Pod) (r observe.Termination) {
	n.T.Helper()
	lines := Follow(n.T, n.Client).Of(n.T, p.UID, n.Patience).Lines
	if len(lines) == 0 {
		n.T.FailNow()
	}
	must.Do(n.T, json.Unmarshal([]byte(lines[len(lines)-1]), &r))
	return r
}

// Reports are the lines of the observer's log about each pod, as JSON.
type Reports struct {
	mu    sync.Mutex // guards lines
	lines map[types.UID][]string
}

// Follow reads the observer's log until the end of the test.
func Follow(t *testing.T, client *kubernetes.Clientset) *Reports {
	t.Helper()
	ctx := t.Context()
	own := client.CoreV1().Pods(ObserverNamespace)
	pods, err := own.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=observer"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatal("there is no observer: ", err)
	}
	log, err := own.GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	must.Do(t, err)
	t.Cleanup(func() { _ = log.Close() })
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 256<<10)
	r := &Reports{lines: map[types.UID][]string{}}
	go func() {
		for lines.Scan() {
			var one struct{ UID types.UID }
			if json.Unmarshal(lines.Bytes(), &one) == nil && one.UID != "" {
				r.mu.Lock()
				r.lines[one.UID] = append(r.lines[one.UID], lines.Text())
				r.mu.Unlock()
			}
		}
	}()
	return r
}

// Report is the observer's report of the end of a pod, and of its containers that ended before.
type Report struct {
	Least, Most             int  // lost requests
	Unbounded               bool // Most is no bound
	Clean, Unclear, Unknown bool // whether all lines are clean; whether one is unclear, unknown
	Lines                   []string
}

// Of waits for the line about the end of a pod.
func (r *Reports) Of(t *testing.T, pod types.UID, patience time.Duration) (all Report) {
	t.Helper()
	err := Await(patience, "reported the end of the pod", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		all.Lines = slices.Clone(r.lines[pod])
		for _, text := range all.Lines {
			if !strings.Contains(text, `"restart":true`) {
				return nil
			}
		}
		return fmt.Errorf("%d lines of restarts", len(all.Lines))
	})
	if err != nil {
		t.Error(err)
	}
	all.Clean = true
	for _, text := range all.Lines {
		var one advice.Termination
		must.Do(t, json.Unmarshal([]byte(text), &one))
		all.Least, all.Most = all.Least+one.LostLeast, all.Most+max(one.LostMost, 0)
		all.Unbounded = all.Unbounded || one.LostMost < 0
		all.Clean = all.Clean && (one.Verdict == advice.Clean || one.Verdict == advice.Killed)
		all.Unclear, all.Unknown = all.Unclear || one.Verdict == advice.Unclear, all.Unknown || one.Verdict == advice.Unknown
	}
	return all
}

// Wrong is how the report misjudges the clients' losses; empty: not at all.
func (r Report) Wrong(lost int) string {
	switch {
	case r.Least > lost:
		return "FALSE LOSS"
	case r.Clean && lost > 0:
		return "FALSE CLEAN"
	case lost > r.Most && !r.Unbounded:
		return "OUTSIDE"
	}
	return ""
}

// Row is a report as cells of a table: the bounds and the verdict.
func (r Report) Row() string {
	verdict := "unclear"
	switch {
	case r.Least > 0:
		verdict = "lost"
	case r.Clean:
		verdict = "clean"
	case r.Unknown:
		verdict = "unknown"
	}
	if r.Unbounded {
		return fmt.Sprintf("%d or more | %s", r.Least, verdict)
	}
	return fmt.Sprintf("%d to %d | %s", r.Least, r.Most, verdict)
}
