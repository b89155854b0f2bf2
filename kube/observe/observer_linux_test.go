package observe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute // only a failure takes it

// namespaces is a kernel that reports what a test wants, or the real one.
type namespaces struct {
	real    Open // nil: what follows is reported
	mu      sync.Mutex
	open    int
	err     error
	begin   error
	reacted time.Time
	seen    observe.Termination
}

func (n *namespaces) Open(path string, _ observe.Options) (Watch, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := os.Stat(filepath.Dir(filepath.Dir(path))); err != nil || n.err != nil {
		return nil, errors.Join(err, n.err)
	}
	var w Watch = &view{of: n}
	if n.real != nil {
		var err error
		if w, err = n.real(path, observe.Options{}); err != nil {
			return nil, err
		}
	}
	n.open++
	return &counted{w, n}, nil
}

// counted counts the namespaces that are open.
type counted struct {
	Watch
	of *namespaces
}

func (c *counted) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.open--
	return c.Watch.Close()
}

type view struct {
	of    *namespaces
	began bool
}

func (v *view) Reacted(since time.Time) time.Time {
	if v.of.reacted.Before(since) {
		return time.Time{}
	}
	return v.of.reacted
}

func (v *view) Begin(time.Time, string) error { v.began = true; return v.of.begin }

func (v *view) End(time.Time, observe.Exit) observe.Termination {
	if !v.began {
		return observe.Termination{}
	}
	return v.of.seen
}

func (v *view) Listening() []uint16 { return v.of.seen.Ports }

func (v *view) Close() error { return nil }

// node is a node with real processes, and an API server that a test scripts.
type node struct {
	t       *testing.T
	proc    string
	kernel  namespaces
	changes *watch.FakeWatcher
	list    []corev1.Pod
	listErr atomic.Value // of lists and watches
	reports chan Termination
	begun   begun
	count   *Metrics
}

// begun is a log that receives for each termination that is watched.
type begun chan struct{}

func (b begun) Enabled(context.Context, slog.Level) bool { return true }
func (b begun) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b begun) WithGroup(string) slog.Handler            { return b }
func (b begun) Handle(_ context.Context, r slog.Record) error {
	if r.Message == observing {
		b <- struct{}{}
	}
	return nil
}

// wait waits for so many terminations that are watched.
func (n *node) wait(terminations int) {
	n.t.Helper()
	for range terminations {
		select {
		case <-n.begun:
		case <-time.After(patience):
			n.t.Fatal("a termination is not watched")
		}
	}
}

func newNode(t *testing.T) *node {
	n := &node{t: t, proc: t.TempDir(), changes: watch.NewFakeWithChanSize(2048, false), reports: make(chan Termination, 2048), begun: make(begun, 2048)}
	n.count = NewMetrics(prometheus.NewRegistry())
	return n
}

// lists cannot be streamed.
type lists struct{ cache.ListWatch }

func (*lists) IsWatchListSemanticsUnSupported() bool { return true }

func (n *node) err() error { err, _ := n.listErr.Load().(error); return err }

// run starts an observer and returns its end.
func (n *node) run(change ...func(*Observer)) (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	o := &Observer{
		Pods: &lists{cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.PodList{Items: n.list, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, n.err()
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return n.changes, n.err() },
		}},
		Proc: n.proc, Open: n.kernel.Open, Node: "node", Report: func(t Termination) { n.reports <- t }, Count: n.count, Log: slog.New(n.begun),
	}
	for _, f := range change {
		f(o)
	}
	done := make(chan struct{})
	go func() { defer close(done); o.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			n.t.Error("the observer hangs")
		}
		n.kernel.mu.Lock()
		defer n.kernel.mu.Unlock()
		if n.kernel.open != 0 {
			n.t.Errorf("%d network namespaces stay open", n.kernel.open)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

func (n *node) next() Termination {
	n.t.Helper()
	select {
	case r := <-n.reports:
		return r
	case <-time.After(patience):
		n.t.Fatal("no termination was reported")
		return Termination{}
	}
}

// none wants no further report.
func (n *node) none() {
	n.t.Helper()
	select {
	case r := <-n.reports:
		n.t.Errorf("also reported: %+v", r)
	default:
	}
}

// idOf is the ID of a container in a pod.
func idOf(name string, pod types.UID) string {
	sum := sha256.Sum256([]byte(name + string(pod)))
	return hex.EncodeToString(sum[:])
}

// process starts a real process in a container of a pod, and returns its end. network is the file of its network
// namespace; without one, it has only a name.
func (n *node) process(pod *corev1.Pod, container string, network ...string) (end func()) {
	n.t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	n.t.Cleanup(end)
	folder := filepath.Join(n.proc, strconv.Itoa(cmd.Process.Pid))
	group := fmt.Sprintf("0::/kubepods.slice/kubepods-pod%s.slice/cri-containerd-%s.scope\n", strings.ReplaceAll(string(pod.UID), "-", "_"), idOf(container, pod.UID))
	for name, text := range map[string]string{"cgroup": group, "stat": fmt.Sprintf("%d (a) b) S 1 1 1", cmd.Process.Pid)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "ns"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Symlink(append(network, "net:["+string(pod.UID)+"]")[0], filepath.Join(folder, "ns", "net")); err != nil {
		n.t.Fatal(err)
	}
	return end
}

// observe starts processes of a pod and an observer, and waits until it watches the pod. end ends the last process first.
func (n *node) observe(pod *corev1.Pod, containers string, change ...func(*Observer)) (stop, end func()) {
	n.t.Helper()
	var ends []func()
	for name := range strings.FieldsSeq(containers) {
		ends = append(ends, n.process(pod, name))
	}
	n.list = []corev1.Pod{*pod}
	stop = n.run(change...)
	n.watched(1)
	return stop, func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
}

func uidOf(number int) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", number))
}

// running is a pod of the Deployment web, with a container app.
func running(number int) *corev1.Pod {
	yes, grace := true, int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-5d4f-%d", number), Namespace: "shop", UID: uidOf(number), Labels: map[string]string{"pod-template-hash": "5d4f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f", UID: "r", Controller: &yes}},
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "app", ReadinessProbe: &corev1.Probe{PeriodSeconds: 1}}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", ContainerID: "containerd://" + idOf("app", uidOf(number)), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

// deleted is the pod after kubectl delete.
func deleted(p *corev1.Pod, grace int64) *corev1.Pod {
	p = p.DeepCopy()
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	return p
}

// exited is the pod with the exit code of its container.
func exited(p *corev1.Pod, code int32) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}
	return p
}

// watched waits until the observer holds the namespaces of so many pods.
func (n *node) watched(pods int) {
	n.t.Helper()
	polltest.NoError(n.t, func() error {
		n.kernel.mu.Lock()
		defer n.kernel.mu.Unlock()
		if n.kernel.open != pods {
			return fmt.Errorf("%d namespaces are open, want %d", n.kernel.open, pods)
		}
		return nil
	})
}

func TestTerminations(t *testing.T) {
	lost := observe.Termination{Lost: observe.Lost{Reset: 2, Refused: 3}, Arrivals: observe.Arrivals{Count: 3, Last: 250}}
	for _, tt := range []struct {
		name    string
		seen    observe.Termination
		ports   bool // the pod declares one
		grace   int64
		code    int32
		verdict string
		killed  bool
		unknown string
	}{
		{name: "nothing lost", grace: 30, verdict: advice.Clean},
		{name: "lost", seen: lost, grace: 30, code: 1, verdict: advice.Lost},
		{name: "SIGKILL without a loss", grace: 30, code: 137, verdict: advice.Killed, killed: true},
		{name: "SIGKILL with a request in flight", seen: observe.Termination{Unclear: observe.Unclear{Unfinished: 1}}, grace: 30, code: 137, verdict: advice.Lost, killed: true},
		{name: "perhaps lost", seen: observe.Termination{Unclear: observe.Unclear{Probes: 2}}, grace: 30, verdict: advice.Unclear},
		{name: "overrun", seen: observe.Termination{Overruns: 1, Unseen: 4}, grace: 30, verdict: advice.Unknown, unknown: UnknownOverrun},
		{name: "no listener was seen", seen: observe.Termination{Idle: 1}, ports: true, grace: 30, verdict: advice.Unknown, unknown: UnknownListener},
		{name: "a listener was seen", seen: observe.Termination{Ports: []uint16{8080}}, ports: true, grace: 30, verdict: advice.Clean},
		{name: "overrun and lost", seen: observe.Termination{Overruns: 1, Lost: observe.Lost{Unanswered: 1}}, grace: 30, verdict: advice.Lost, unknown: UnknownOverrun},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.kernel.seen = tt.seen
			pod := running(1)
			if tt.ports {
				pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
			}
			stop, end := n.observe(pod, "pause app")
			if got := testutil.CollectAndCount(n.count.lost); got != 5 {
				t.Errorf("%d counters of lost requests before the termination, want one for each reason", got)
			}
			pod = deleted(pod, tt.grace)
			n.changes.Modify(pod)
			n.wait(1)
			end()
			n.changes.Modify(exited(pod, tt.code))
			r := n.next()
			n.changes.Delete(exited(pod, tt.code))
			if r.Verdict != tt.verdict || (len(r.Killed) > 0) != tt.killed || strings.Join(r.Unknown, " ") != tt.unknown {
				t.Errorf("verdict %s, killed %q, unknown %q", r.Verdict, r.Killed, r.Unknown)
			}
			if r.Workload != "deployment/web" || r.Namespace != "shop" || r.Pod != pod.Name || r.Proxy != "none" || len(r.Exits) != 1 || *r.Exits[0].Code != tt.code {
				t.Errorf("%+v", r)
			}
			if d := r.Deadline.Sub(r.Began); d != time.Duration(tt.grace)*time.Second {
				t.Errorf("the deadline is %v after the beginning", d)
			}
			stop()
			n.none()
			if got := testutil.ToFloat64(n.count.terminations.WithLabelValues("shop", "deployment/web", "none", tt.verdict)); got != 1 {
				t.Errorf("%v terminations were counted", got)
			}
		})
	}
}

// TestNotObserved: what was missed is counted as unknown, never as clean.
func TestNotObserved(t *testing.T) {
	t.Parallel()
	t.Run("the namespace cannot be entered", func(t *testing.T) {
		n := newNode(t)
		n.kernel.err = errors.New("operation not permitted")
		pod := running(1)
		end := n.process(pod, "app")
		n.list = []corev1.Pod{*deleted(pod, 30)}
		n.run()
		end()
		if r := n.next(); r.Verdict != advice.Unknown || !strings.Contains(strings.Join(r.Unknown, " "), UnknownNamespace) {
			t.Errorf("%+v", r)
		}
		if testutil.ToFloat64(n.count.unknown.WithLabelValues(UnknownNamespace)) != 1 {
			t.Error("it was not counted")
		}
	})
	t.Run("it began before the observer", func(t *testing.T) {
		n := newNode(t)
		pod := running(1)
		last := deleted(pod, 30)
		early := metav1.NewTime(last.DeletionTimestamp.Add(-10 * time.Second))
		last.DeletionTimestamp = &early
		_, end := n.observe(last, "app")
		end()
		n.changes.Delete(exited(last, 0))
		if r := n.next(); r.Verdict != advice.Unknown || r.Unknown[0] != UnknownLate {
			t.Errorf("%+v", r)
		}
	})
	t.Run("the observer ends first", func(t *testing.T) {
		n := newNode(t)
		pod := running(1)
		stop, _ := n.observe(deleted(pod, 30), "app")
		stop()
		if r := n.next(); r.Verdict != advice.Unknown || !strings.Contains(strings.Join(r.Unknown, " "), UnknownEnd) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("deleted with --force", func(t *testing.T) {
		n := newNode(t)
		pod := running(1)
		_, end := n.observe(pod, "app")
		n.changes.Delete(deleted(pod, 0))
		n.wait(1)
		end()
		if r := n.next(); r.Verdict == advice.Unknown || len(r.Exits) != 1 {
			t.Errorf("%+v", r)
		}
		n.none()
	})
	t.Run("the kubelet ends it by itself", func(t *testing.T) {
		n := newNode(t)
		pod := running(1)
		_, end := n.observe(pod, "app")
		pod = pod.DeepCopy()
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet}}
		n.changes.Modify(pod)
		n.wait(1)
		end()
		n.changes.Modify(exited(pod, 0))
		if r := n.next(); r.Verdict != advice.Clean || !r.Deadline.IsZero() {
			t.Errorf("%+v", r)
		}
	})
}

// TestHostNetwork: its network namespace is the node's, and its sockets are not the pod's alone.
func TestHostNetwork(t *testing.T) {
	n := newNode(t)
	pod := running(1)
	pod.Spec.HostNetwork = true
	n.process(pod, "app")
	other := running(2)
	n.process(other, "app")
	n.list = []corev1.Pod{*deleted(pod, 30), *other}
	stop := n.run()
	n.watched(1)
	n.changes.Modify(deleted(pod, 20)) // reported once
	stop()
	if r := n.next(); r.UID != pod.UID || r.Verdict != advice.Unknown || !slices.Equal(r.Unknown, []string{UnknownHostNetwork}) || !strings.Contains(r.Summary(), "the node's network") {
		t.Errorf("%+v", r)
	}
	n.none()
	if got := testutil.ToFloat64(n.count.pods.WithLabelValues("host-network")); got != 1 {
		t.Errorf("%v pods are counted as left out", got)
	}
	if got := testutil.ToFloat64(n.count.unknown.WithLabelValues(UnknownHostNetwork)); got != 1 {
		t.Errorf("%v terminations are counted as left out", got)
	}
	if got := testutil.CollectAndCount(n.count.terminations); got != len(advice.Verdicts) {
		t.Errorf("%d series of terminations; want those of the other pod", got)
	}
}

// TestManyAtOnce: a node is drained.
func TestManyAtOnce(t *testing.T) {
	const pods = 500
	n := newNode(t)
	var ends []func()
	for i := range pods {
		pod := running(i)
		ends = append(ends, n.process(pod, "app"))
		n.list = append(n.list, *pod)
	}
	stop := n.run()
	n.watched(pods)
	for i := range pods {
		n.changes.Modify(deleted(&n.list[i], 30))
	}
	n.wait(pods)
	for i := range pods {
		ends[i]()
		n.changes.Delete(exited(deleted(&n.list[i], 30), 0))
	}
	for range pods {
		if r := n.next(); r.Verdict != advice.Clean {
			t.Errorf("%s: %s %q", r.Pod, r.Verdict, r.Unknown)
		}
	}
	stop()
	n.none()
}

// TestAPIServerAway: processes exit although the API server announced nothing.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := running(1)
	stop, end := n.observe(pod, "app")
	n.listErr.Store(errors.New("connection refused"))
	n.changes.Stop()
	end()
	if r := n.next(); r.Verdict != advice.Unknown || r.Unknown[0] != UnknownDeadline {
		t.Errorf("%+v", r)
	}
	stop()
}

func TestOwnerOf(t *testing.T) {
	const id, uid = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "5f0c4b6e-1111-2222-3333-444455556666"
	for text, want := range map[string]struct {
		uid       types.UID
		container string
	}{
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5f0c4b6e_1111_2222_3333_444455556666.slice/cri-containerd-" + id + ".scope\n": {uid, id},
		"0::/../../kubepods-pod5f0c4b6e_1111_2222_3333_444455556666.slice/crio-" + id + ".scope/nested\n":                                                {uid, id},
		"0::/kubepods/besteffort/pod5f0c4b6e-1111-2222-3333-444455556666/" + id + "\n":                                                                   {uid, id},
		"9:name=systemd:/\n4:memory:/k8s.io/" + id + "\n0::/k8s.io/" + id + "\n":                                                                         {"", id},
		"0::/kubepods/pod5f0c4b6e111122223333444455556666/" + id:                                                                                         {"5f0c4b6e111122223333444455556666", id},
		"0::/system.slice/sshd.service\n": {},
		"0::/\n":                          {},
	} {
		if uid, container := ownerOf([]byte(text)); uid != want.uid || container != want.container {
			t.Errorf("%s: %s %s", text, uid, container)
		}
	}
}

// TestNewsAfterTheSignal: an app that has exited when the API server's news come was observed all the same.
func TestNewsAfterTheSignal(t *testing.T) {
	n := newNode(t)
	n.kernel.seen = observe.Termination{Lost: observe.Lost{Unanswered: 3}}
	pod := running(1)
	_, end := n.observe(pod, "app")
	pod = deleted(pod, 30)
	n.kernel.mu.Lock()
	n.kernel.reacted = time.Now()
	n.kernel.mu.Unlock()
	end()
	n.changes.Modify(pod)
	n.changes.Modify(exited(pod, 1))
	if r := n.next(); r.Verdict != advice.Lost || len(r.Unknown) > 0 || !r.Began.Equal(n.kernel.reacted) || len(r.Exits) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestRestart: what a container loses that ends without its pod is reported, and then what the pod's end loses.
func TestRestart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.kernel.seen = observe.Termination{Ports: []uint16{8080}, Lost: observe.Lost{Unanswered: 2}}
	pod := running(1)
	endSandbox, endApp := n.process(pod, "pause"), n.process(pod, "app")
	n.list = []corev1.Pod{*pod}
	n.run()
	n.watched(1)
	endApp()
	r := n.next()
	if !r.Restart || r.Container != "app" || r.Verdict != advice.Lost || r.LostLeast != 2 || r.LostMost != 2 {
		t.Errorf("%+v", r)
	}
	if got := testutil.ToFloat64(n.count.lost.WithLabelValues("shop", "deployment/web", "none", advice.ReasonRestart)); got != 2 {
		t.Errorf("%v requests lost by the restart were counted", got)
	}
	n.changes.Modify(deleted(pod, 30))
	n.wait(1)
	endSandbox()
	n.changes.Delete(exited(deleted(pod, 30), 1))
	if r := n.next(); r.Restart || r.LostLeast != 2 {
		t.Errorf("the pod's own end: %+v", r)
	}
}

// TestMissedRestart: what a container has lost that ended before the observer found it is unknown at the pod's end.
func TestMissedRestart(t *testing.T) {
	n := newNode(t)
	n.kernel.seen = observe.Termination{Ports: []uint16{8080}}
	pod := running(1)
	n.list = []corev1.Pod{*pod}
	n.run()
	again := pod.DeepCopy()
	again.Status.ContainerStatuses[0].RestartCount = 1
	again.Status.ContainerStatuses[0].ContainerID = "containerd://" + idOf("again", pod.UID)
	end := n.process(pod, "again")
	n.changes.Modify(again)
	n.watched(1)
	n.changes.Modify(deleted(again, 30))
	n.wait(1)
	end()
	n.changes.Delete(exited(deleted(again, 30), 1))
	if r := n.next(); r.Verdict != advice.Unknown || !slices.Contains(r.Unknown, UnknownLate) {
		t.Errorf("%+v", r)
	}
}

// TestAddresses: those of the node itself.
func TestAddresses(t *testing.T) {
	if isOwn := addresses(t.TempDir() + "/none"); !isOwn(netip.MustParseAddr("192.0.2.1")) {
		t.Error("without the node's namespace, an address is taken for another's")
	}
	home := nettest.New(t).Pod
	isOwn := addresses(home.Path())
	for address, want := range map[string]bool{home.IPv4.String(): true, "192.0.2.77": false, home.IPv6.String(): true, "fd00::77": false, "169.254.7.127": true} {
		if isOwn(netip.MustParseAddr(address)) != want {
			t.Errorf("%s: %v", address, !want)
		}
	}
}
