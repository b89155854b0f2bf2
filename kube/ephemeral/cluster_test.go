package ephemeral

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/kube/workload"
)

const namespace = "shop"

// cluster is a fake API server with a kubelet: it starts ephemeral containers, and ends all pods when the Deployment
// web is restarted.
type cluster struct {
	t     *testing.T
	set   *fake.Clientset
	image string // that can be pulled

	mu     sync.Mutex // guards the fields below
	logs   map[string]*journal
	ending map[string]ending // by pod
	kills  sync.WaitGroup
}

// ending is how a pod ends.
type ending struct {
	log  []string // lines of the observer, after its first
	code int32    // of the app
}

// journal is a log that can be followed from its beginning. The cluster's mu guards its fields.
type journal struct {
	text    string
	isOver  bool
	read    int           // bytes that a follower has received
	changed chan struct{} // closed at the next change
}

// change changes the journal of a container.
func (c *cluster) change(container string, by func(*journal)) {
	j := c.journal(container)
	c.mu.Lock()
	defer c.mu.Unlock()
	by(j)
	close(j.changed)
	j.changed = make(chan struct{})
}

// await waits until the journal of a container is as done wants, and returns it.
func (c *cluster) await(ctx context.Context, container string, done func(journal) bool) (journal, error) {
	for {
		j := c.journal(container)
		c.mu.Lock()
		now := *j
		c.mu.Unlock()
		if done(now) {
			return now, nil
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// log writes a line to the journal of a container.
func (c *cluster) log(container, line string) {
	c.change(container, func(j *journal) { j.text += line + "\n" })
}

// follow writes the lines of a container's journal until it is complete.
func (c *cluster) follow(ctx context.Context, container string, w *io.PipeWriter) {
	for sent := 0; ; {
		j, err := c.await(ctx, container, func(j journal) bool { return j.isOver || len(j.text) > sent })
		if err == nil && len(j.text) > sent {
			_, err = io.WriteString(w, j.text[sent:])
		}
		if err != nil || j.isOver {
			_ = w.CloseWithError(err)
			return
		}
		sent = len(j.text)
		c.change(container, func(j *journal) { j.read = max(j.read, sent) })
	}
}

// core is the fake's client, whose pods have logs.
type core struct {
	coreclient.CoreV1Interface
	cluster *cluster
}

func (c core) Pods(namespace string) coreclient.PodInterface {
	return pods{c.CoreV1Interface.Pods(namespace), c.cluster}
}

type pods struct {
	coreclient.PodInterface
	cluster *cluster
}

// IsWatchListSemanticsUnSupported is the fake's word to informers that its watches have no bookmarks.
func (core) IsWatchListSemanticsUnSupported() bool { return true }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (p pods) GetLogs(name string, o *corev1.PodLogOptions) *rest.Request {
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		in, out := io.Pipe()
		if !o.Follow {
			return nil, errors.New("the log is not followed")
		}
		go p.cluster.follow(r.Context(), o.Container, out)
		return &http.Response{StatusCode: http.StatusOK, Body: in, Header: http.Header{}, Request: r}, nil
	})}
	base, _ := url.Parse("http://cluster.invalid")
	return rest.NewRequestWithClient(base, "", rest.ClientContentConfig{GroupVersion: schema.GroupVersion{Version: "v1"},
		ContentType: runtime.ContentTypeJSON, Negotiator: runtime.NewClientNegotiator(scheme.Codecs, schema.GroupVersion{Version: "v1"})}, client).Verb("GET").AbsPath("/log/" + name)
}

func (c *cluster) journal(container string) *journal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logs[container] == nil {
		c.logs[container] = &journal{changed: make(chan struct{})}
	}
	return c.logs[container]
}

// newCluster has a Deployment with one pod for each ending.
func newCluster(t *testing.T, endings map[string]ending, objects ...runtime.Object) *cluster {
	labels := map[string]string{"app": "web"}
	n := int32(len(endings))
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace}, Spec: appsv1.DeploymentSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status: appsv1.DeploymentStatus{Replicas: n, UpdatedReplicas: n, AvailableReplicas: n}}
	objects = append(objects, web)
	for name := range endings {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name), Labels: labels},
			Spec:   corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](20), Containers: []corev1.Container{{Name: "app", Image: "app"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}})
	}
	c := &cluster{t: t, set: fake.NewSimpleClientset(objects...), image: "lastcall:1", logs: map[string]*journal{}, ending: endings}
	c.set.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		for name, e := range endings {
			c.kills.Go(func() { c.end(name, e) })
		}
		return false, nil, nil
	})
	t.Cleanup(c.kills.Wait)
	return c
}

// clients also starts the kubelet: from then on the set of reactions must not change.
func (c *cluster) clients() workload.Clients {
	c.kills.Go(func() { c.kubelet(c.t.Context()) })
	return workload.Clients{Core: core{c.set.CoreV1(), c}, Apps: c.set.AppsV1()}
}

// kubelet starts ephemeral containers until ctx ends.
func (c *cluster) kubelet(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := c.set.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return
		}
		for i := range list.Items {
			p := &list.Items[i]
			if len(p.Spec.EphemeralContainers) <= len(p.Status.EphemeralContainerStatuses) {
				continue
			}
			one := p.Spec.EphemeralContainers[len(p.Status.EphemeralContainerStatuses)]
			s := corev1.ContainerStatus{Name: one.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
			if one.Image != c.image {
				s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}
			} else {
				c.log(one.Name, `{"observing":{"ports":[8080]}}`)
			}
			p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, s)
			_, _ = c.set.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// end takes a pod through its termination.
func (c *cluster) end(name string, e ending) {
	ctx := context.Background()
	update := func(change func(p *corev1.Pod)) {
		p, err := c.set.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			change(p)
			_, err = c.set.CoreV1().Pods(namespace).Update(ctx, p, metav1.UpdateOptions{})
		}
		if err != nil {
			c.t.Error(err)
		}
	}
	update(func(p *corev1.Pod) {
		at := metav1.NewTime(time.Now().Add(20 * time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, ptr.To[int64](20)
		for _, one := range p.Spec.EphemeralContainers {
			for _, line := range e.log { // each is received while the log continues
				c.log(one.Name, line)
				limited, cancel := context.WithTimeout(ctx, 10*time.Second)
				if _, err := c.await(limited, one.Name, func(j journal) bool { return j.read == len(j.text) }); err != nil {
					c.t.Errorf("%s: the line %s is not read: %v", name, line, err)
				}
				cancel()
			}
			c.change(one.Name, func(j *journal) { j.isOver = true })
		}
	})
	update(func(p *corev1.Pod) {
		end := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: e.code, FinishedAt: metav1.Now()}}
		p.Status.ContainerStatuses[0].State = end
		for i := range p.Status.EphemeralContainerStatuses {
			p.Status.EphemeralContainerStatuses[i].State = end
		}
		at := metav1.NewTime(p.DeletionTimestamp.Add(-20 * time.Second)) // the kubelet deletes it once more
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, ptr.To[int64](0)
	})
	if err := c.set.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		c.t.Error(err)
	}
}

// report is a line of an observer.
func report(fields string) string {
	return fmt.Sprintf(`{"begin":%q,"duration_ms":3000,%s}`, time.Now().Format(time.RFC3339Nano), strings.TrimSuffix(fields, ","))
}
