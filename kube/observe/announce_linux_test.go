package observe

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

const podToken = "7f3a7f3a7f3a7f3a"

// agent is lastcall's status port in a pod: what it received, and the code that it answers with.
func agent(t *testing.T, code int) (port int, received <-chan url.Values) {
	out := make(chan url.Values, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/deadline/"+podToken {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		out <- r.URL.Query()
		http.Error(w, "", code)
	}))
	t.Cleanup(server.Close)
	_, number, _ := net.SplitHostPort(server.Listener.Addr().String())
	port, _ = strconv.Atoi(number)
	return port, out
}

// injected is a pod with lastcall's sidecar, which has this status port.
func injected(number, port int) *corev1.Pod {
	p := running(number)
	p.Annotations = map[string]string{inject.AnnotationStatus: string(inject.Injected)}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: "lastcall", Env: []corev1.EnvVar{{Name: "LASTCALL_HOOK_TOKEN", Value: podToken}},
		Ports: []corev1.ContainerPort{{Name: pod.PortStatus, ContainerPort: int32(port)}},
	})
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "lastcall", ContainerID: "containerd://" + idOf("lastcall", p.UID), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	})
	return p
}

func announces(o *Observer) { o.Announces, o.ShutdownGrace = true, 20*time.Second }

// disrupted is a pod with a reason in its condition DisruptionTarget.
func disrupted(p *corev1.Pod, reason, message string) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
	return p
}

// TestAnnounce has each way in which a pod of 30 s gets less.
func TestAnnounce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod) *corev1.Pod
		from   string
		in     time.Duration
	}{
		{"kubectl delete --grace-period=8", func(p *corev1.Pod) *corev1.Pod { return deleted(p, 8) }, FromDelete, 8 * time.Second},
		{"--grace-period=0: the kubelet gives a second", func(p *corev1.Pod) *corev1.Pod { return deleted(p, 0) }, FromDelete, time.Second},
		{"an eviction with a grace period", func(p *corev1.Pod) *corev1.Pod {
			return deleted(disrupted(p, reasonEviction, "Eviction API: evicting"), 5)
		}, FromEviction, 5 * time.Second},
		{"a shutdown of the node", func(p *corev1.Pod) *corev1.Pod {
			return disrupted(p, corev1.PodReasonTerminationByKubelet, messageShutdown)
		}, FromShutdown, 20 * time.Second},
		{"its own grace period", func(p *corev1.Pod) *corev1.Pod { return deleted(p, 30) }, "", 0},
		{"a longer one", func(p *corev1.Pod) *corev1.Pod { return deleted(p, 60) }, "", 0},
		{"eviction under pressure, whose time the kubelet does not show", func(p *corev1.Pod) *corev1.Pod {
			return disrupted(p, corev1.PodReasonTerminationByKubelet, "The node was low on resource: memory.")
		}, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port, received := agent(t, http.StatusOK)
			n := newNode(t)
			pod := injected(1, port)
			_, end := n.observe(pod, "pause app lastcall", announces)
			sent := time.Now()
			pod = tt.change(pod)
			n.changes.Modify(pod)
			n.wait(1)
			if tt.from != "" {
				q := <-received
				at, err := time.Parse(time.RFC3339Nano, q.Get("at"))
				if in := at.Sub(sent); err != nil || q.Get("from") != tt.from || in < tt.in || in > tt.in+5*time.Second {
					t.Errorf("received %v (in %v), want %s in %v", q, in, tt.from, tt.in)
				}
				polltest.Eventually(t, "the observer has the answer", func() bool { return testutil.CollectAndCount(n.count.deadlines) > 0 })
			}
			end()
			n.changes.Modify(exited(pod, 0))
			n.changes.Delete(exited(pod, 0))
			r := n.next()
			if len(received) > 0 {
				t.Errorf("also received: %v", <-received)
			}
			if r.DeadlineFrom != tt.from || tt.from != "" && r.Deadline.Sub(r.Began).Round(time.Second) != tt.in {
				t.Errorf("deadline from %q, %v after the beginning; want %q, %v", r.DeadlineFrom, r.Deadline.Sub(r.Began), tt.from, tt.in)
			}
			if got := testutil.CollectAndCount(n.count.deadlines); got != min(1, len(tt.from)) {
				t.Errorf("%d series of announcements", got)
			}
		})
	}
}

// TestAnnounceAgain has a second deletion that is shorter than the first.
func TestAnnounceAgain(t *testing.T) {
	port, received := agent(t, http.StatusOK)
	n := newNode(t)
	pod := injected(1, port)
	n.observe(pod, "pause app lastcall", announces)
	in := func(from string) time.Duration {
		t.Helper()
		q := <-received
		at, err := time.Parse(time.RFC3339Nano, q.Get("at"))
		if err != nil || q.Get("from") != from {
			t.Fatalf("received %v, want %s", q, from)
		}
		return time.Until(at).Round(5 * time.Second) // a busy machine notices it late
	}
	n.changes.Modify(deleted(pod, 25))
	if got := in(FromDelete); got != 25*time.Second {
		t.Errorf("the first deletion: in %v", got)
	}
	n.changes.Modify(deleted(pod, 20))
	if got := in(FromDelete); got != 20*time.Second {
		t.Errorf("the second deletion: in %v", got)
	}
}

// TestAnnounceFails has agents that refuse, or are not there, and a pod without one: nothing hangs, and the token is in no
// log and no report.
func TestAnnounceFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		code   int // 0: nothing listens
		result string
	}{
		{"refuses", http.StatusConflict, refused},
		{"has another token", http.StatusNotFound, refused},
		{"is away", 0, failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := 1
			if tt.code > 0 {
				port, _ = agent(t, tt.code)
			}
			n := newNode(t)
			pod := injected(1, port)
			_, end := n.observe(pod, "app lastcall pause", announces)
			pod = deleted(pod, 8)
			n.changes.Modify(pod)
			n.wait(1)
			polltest.Eventually(t, "counted as "+tt.result, func() bool {
				return testutil.ToFloat64(n.count.deadlines.WithLabelValues(FromDelete, tt.result)) > 0
			})
			end()
			n.changes.Delete(exited(pod, 0))
			r := n.next()
			text, err := json.Marshal(r)
			if err != nil || r.DeadlineFrom != "" || strings.Contains(string(text), podToken) || strings.Contains(fmt.Sprintf("%+v", r), podToken) {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
	p := process{pid: 1 << 30}
	if h, err := p.open(t.TempDir()); err != nil || h.exited.Err() == nil {
		t.Fatalf("%v, %v", h, err)
	}
}

// TestAgentReport has what the agent wrote into its termination message: it is the truth
// for what the kernel shows of the same connections.
func TestAgentReport(t *testing.T) {
	cut := func(n int) string {
		r := drain.Report{Verdict: drain.Cut, Trigger: "SIGTERM", Began: time.Now(), Duration: drain.Millis(6 * time.Second), DeadlineFrom: "delete"}
		for i := range n {
			r.Open = append(r.Open, drain.Conversation{Peer: fmt.Sprint("10.0.0.1:", i), Request: "GET /events", Ending: "truncated"})
		}
		text, _ := json.Marshal(r)
		return string(text)
	}
	clean, _ := json.Marshal(drain.Report{Verdict: drain.Clean, Trigger: "SIGTERM", Began: time.Now()})
	for _, tt := range []struct {
		name    string
		message string
		reset   int
		verdict string
		cut     int
	}{
		{"nothing was cut", string(clean), 0, advice.Clean, 0},
		{"three streams", cut(3), 0, advice.Lost, 3},
		{"the kernel shows one of them as reset", cut(3), 1, advice.Lost, 3},
		{"the kernel shows more", cut(1), 4, advice.Lost, 1},
		{"the kernel shows a loss, and the agent none", string(clean), 4, advice.Clean, 0},
		{"an opaque connection", strings.Replace(cut(1), `"protocol":""`, `"protocol":"tcp"`, 1), 0, advice.Unclear, 0},
		{"a WebSocket with a close frame", strings.Replace(cut(1), "truncated", "close 1012", 1), 0, advice.Clean, 0},
		{"no report", "", 0, advice.Clean, 0},
		{"no report: the kernel's losses are doubts", "", 4, advice.Unclear, 0},
		{"another program's message is no report", "exit status 1", 2, advice.Unclear, 0},
		{"another program's message", "exit status 1", 0, advice.Clean, 0},
		{"a number without bound", strings.Replace(cut(1), `"open"`, `"left_out":9000000000000000000,"open"`, 1), 0, advice.Lost, maxCut},
		{"a negative number", strings.Replace(cut(1), `"open"`, `"left_out":-5,"open"`, 1), 0, advice.Lost, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := injected(1, 15020)
			p.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: tt.message, FinishedAt: metav1.Now()}}
			pod := podOf(p)
			r := Termination{}
			r.Traffic.Lost.Reset = tt.reset
			r.conclude(&pod, map[string]time.Duration{idOf("lastcall", p.UID): 6 * time.Second, idOf("app", p.UID): 6 * time.Second})
			if tt.verdict == advice.Unclear && tt.reset > 0 && (r.LostLeast != 0 || r.LostMost != tt.reset || eventOf(r).Reason != ReasonUnclear) {
				t.Errorf("%s lost, Event %s; want 0 to %d", r.Bounds(), eventOf(r).Reason, tt.reset)
			}
			if r.Verdict != tt.verdict || r.Traffic.Lost.Cut != tt.cut || (r.Agent != nil) != strings.HasPrefix(tt.message, "{") {
				t.Errorf("%s, %+v, %+v", r.Verdict, r.Traffic.Lost, r.Agent)
			}
			if tt.cut > 0 && !slices.Contains(strings.Fields(strings.NewReplacer("(", "", ")", "", ",", "").Replace(r.Summary())), "cut;") {
				t.Errorf("%q", r.Summary())
			}
		})
	}
}
