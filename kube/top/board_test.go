package top

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/live"
	"github.com/lastcall-dev/lastcall/kube/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is one of the Deployment shop/web, with an agent.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app"},
			{Name: "lastcall", Ports: []corev1.ContainerPort{{Name: "http-lastcall", ContainerPort: 15020}}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func clients(pods ...*corev1.Pod) check.Clients {
	api := fake.NewClientset(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	})
	for _, p := range pods {
		if err := api.Tracker().Add(p); err != nil {
			panic(err)
		}
	}
	return check.Clients{Core: api.CoreV1(), Apps: api.AppsV1()}
}

// run runs a board until the test ends.
func run(t *testing.T, b *Board) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	t.Cleanup(func() {
		if cancel(); <-ran != nil {
			t.Error("the board has failed")
		}
	})
	b.Settle(ctx, 10*time.Second)
}

// states is a Follow that sends one state of each pod.
func states(ctx context.Context, p *corev1.Pod, each func(live.State)) error {
	if _, err := statusPort(p); err != nil {
		return err
	}
	each(live.State{Host: p.Name, Phase: "serving"})
	<-ctx.Done()
	return ctx.Err()
}

// Settle waits for an API server that takes longer to list the pods than their agents may take to answer.
func TestSlowList(t *testing.T) {
	api := fake.NewClientset(pod("web-1"))
	api.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(200 * time.Millisecond)
		return false, nil, nil
	})
	b := NewBoard(check.Clients{Core: api.CoreV1(), Apps: api.AppsV1()}, Target{Namespace: "shop", Name: "web-1"}, time.Minute, states)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	b.Settle(ctx, time.Millisecond)
	if pods, _, _ := b.Snapshot(); len(pods) != 1 {
		t.Errorf("%d pods, want 1", len(pods))
	}
	if cancel(); <-ran != nil {
		t.Error("the board has failed")
	}
}

func TestBoardFollowsAWorkload(t *testing.T) {
	bare := pod("web-3")
	bare.Spec.Containers = bare.Spec.Containers[:1]
	other := pod("other")
	other.Labels["app"] = "other"
	ended := pod("web-4")
	ended.Status.Phase = corev1.PodFailed
	ended.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "lastcall", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Message: `{"verdict":"clean","mode":"exit-on-zero","trigger":"SIGTERM","began":"2026-01-02T03:04:05Z","duration_ms":5000,"phases":[{"phase":"draining","ms":5000}],"late":0}`,
	}}}}
	b := NewBoard(clients(pod("web-1"), pod("web-2"), bare, ended, other), Target{"shop", "web"}, time.Second, states)
	run(t, b)
	pods, isAll, problem := b.Snapshot()
	if len(pods) != 4 || !isAll || problem != nil {
		t.Fatalf("%+v, all %v, problem %v; want four pods", pods, isAll, problem)
	}
	for i, host := range []string{"web-1", "web-2"} {
		if pods[i].State == nil || pods[i].State.Host != host {
			t.Errorf("pod %d: %+v; want the state of %s", i, pods[i], host)
		}
	}
	if pods[2].State != nil || pods[2].Problem != errNoAgent.Error() {
		t.Errorf("a pod without lastcall: %+v", pods[2])
	}
	if !strings.HasPrefix(pods[3].Report, "drained in 5.0s") {
		t.Errorf("a pod that has ended: %q", pods[3].Report)
	}
}

func TestTargets(t *testing.T) {
	all := []*corev1.Pod{pod("web-1"), pod("web-2"), pod("injected")}
	all[2].Labels = map[string]string{"lastcall.dev/injected": "true"}
	for _, row := range []struct {
		target Target
		want   int
	}{
		{Target{"shop", "web"}, 2},
		{Target{"shop", ""}, 1},
		{Target{"", ""}, 1},
	} {
		b := NewBoard(clients(all...), row.target, time.Second, states)
		if err := b.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pods, _, _ := b.Snapshot(); len(pods) != row.want {
			t.Errorf("%+v: %d pods; want %d", row.target, len(pods), row.want)
		}
	}
	err := NewBoard(clients(), Target{"shop", "nothing"}, time.Second, states).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no pod, Deployment, StatefulSet or DaemonSet has this name") {
		t.Errorf("a name that does not exist: %v", err)
	}
}

// The states of a real feed, over a connection as a forwarded port gives it.
func TestRequest(t *testing.T) {
	state := live.State{Host: "web-1", Phase: "waiting", Drain: &live.Drain{Kill: drain.Millis(time.Second)},
		Holding: []drain.Conversation{{Request: "GET /" + strings.Repeat("x", 60<<10)}}}
	feed := live.New(func() live.State { return state }, func() <-chan struct{} { return nil })
	mux := http.NewServeMux()
	mux.HandleFunc(live.EventsPath, feed.Events)
	address := serve(t, mux)
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	n := 0
	err = request(connection, func(s live.State) {
		if n++; s.Host != "web-1" || s.Drain == nil || len(s.Holding) != 1 {
			t.Errorf("got %+v", s)
		}
		feed.Close()
	})
	if n < 1 || !errors.Is(err, errEnded) {
		t.Errorf("%d states, then %v; want some, and the end", n, err)
	}
}

func TestRequestOfAnOlderAgent(t *testing.T) {
	connection, err := net.Dial("tcp", serve(t, http.NotFoundHandler()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := request(connection, nil); err == nil || !strings.Contains(err.Error(), "older") {
		t.Error(err)
	}
}

// An endless state must not fill the memory.
func TestRequestOfAnEndlessState(t *testing.T) {
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	}))
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := request(connection, nil); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
}

func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return ln.Addr().String()
}
