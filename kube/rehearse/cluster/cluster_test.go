package cluster

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/kube/workload"
)

const namespace = "shop"

var podLabels = map[string]string{"app": "web"}

// cluster is a fake API server whose Deployment web has two pods, with a real HTTP server as their Service. A change of
// the Deployment replaces them one after the other. A lossy server closes all its connections when an old pod's app
// ends.
type cluster struct {
	t       *testing.T
	set     *fake.Clientset
	url     *url.URL
	isLossy bool
	patched atomic.Int32
	ending  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]bool
}

// core is the fake's client; its watches have no bookmarks.
type core struct{ coreclient.CoreV1Interface }

func (core) IsWatchListSemanticsUnSupported() bool { return true }

func aPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name), Labels: podLabels},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](20), Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
}

func newCluster(t *testing.T, isLossy bool, change func(*appsv1.Deployment)) *cluster {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
		Spec:   appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}},
		Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}}
	if change != nil {
		change(web)
	}
	c := &cluster{t: t, isLossy: isLossy, conns: map[net.Conn]bool{}}
	c.set = fake.NewSimpleClientset(web, aPod("old-1"), aPod("old-2"))
	c.set.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		if c.patched.Add(1) == 1 {
			c.ending.Go(func() { c.replace("old-1", "new-1"); c.replace("old-2", "new-2") })
		}
		return false, nil, nil
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte("answered"))
	}))
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conns[conn] = true; state == http.StateClosed {
			delete(c.conns, conn)
		}
	}
	server.Start()
	t.Cleanup(func() { server.Close(); c.ending.Wait() })
	c.url, _ = url.Parse(server.URL)
	return c
}

func (c *cluster) clients() workload.Clients {
	return workload.Clients{Core: core{c.set.CoreV1()}, Apps: c.set.AppsV1()}
}

// replace takes an old pod through its end, next to another that stays.
func (c *cluster) replace(old, next string) {
	ctx := context.Background()
	pods := c.set.CoreV1().Pods(namespace)
	must := func(_ any, err error) {
		if err != nil {
			c.t.Error(err)
		}
	}
	must(pods.Create(ctx, aPod(next), metav1.CreateOptions{}))
	p := aPod(old)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(20 * time.Second)}, ptr.To[int64](20)
	must(pods.Update(ctx, p.DeepCopy(), metav1.UpdateOptions{}))
	time.Sleep(300 * time.Millisecond) // of the pod's end, in which requests are lost
	if c.isLossy {
		c.mu.Lock()
		for conn := range c.conns {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
		c.mu.Unlock()
	}
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}
	must(pods.Update(ctx, p, metav1.UpdateOptions{}))
	if err := pods.Delete(ctx, old, metav1.DeleteOptions{}); err != nil {
		c.t.Error(err)
	}
}
