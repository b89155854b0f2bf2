//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// liveness has the kubelet ask this machine, and not the container, whether it is to be restarted. It fails once, after fail.
func liveness(t *testing.T) (probe string, fail func()) {
	t.Helper()
	var failing atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if failing.CompareAndSwap(true, false) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr)
	return fmt.Sprintf("        livenessProbe: {httpGet: {path: /, host: %s, port: %d}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 10}", at.IP, at.Port), func() { failing.Store(true) }
}

// second is a second app container of the pod, which is not affected.
const second = `
      - name: second
        image: "` + builtIn + `:%s"
        imagePullPolicy: Never
        args: [httpbin, --listen, ":8081"]
        ports: [{containerPort: 8081}]`

// fresh are 20 requests a second, each on a connection of its own.
type fresh struct {
	mu       sync.Mutex
	refused  int
	failed   map[string]int
	answered int
	slowest  time.Duration
	gap      time.Duration // between two answers, at most
	latest   time.Time

	cancel context.CancelFunc
	all    sync.WaitGroup
}

func startFresh(url string) *fresh {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fresh{failed: map[string]int{}, cancel: cancel}
	f.all.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-tick.C:
				f.all.Go(func() { f.ask(url) })
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
	return f
}

func (f *fresh) ask(url string) {
	code, took, err := get(context.Background(), url)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		f.refused++
	case err != nil:
		f.failed[err.Error()]++
	case code != http.StatusOK:
		f.failed[fmt.Sprint(code)]++
	default:
		now := time.Now()
		if !f.latest.IsZero() {
			f.gap = max(f.gap, now.Sub(f.latest))
		}
		f.latest = now
		f.answered++
		f.slowest = max(f.slowest, took)
	}
}

func (f *fresh) stop() { f.cancel(); f.all.Wait() }

func (f *fresh) String() string {
	return fmt.Sprintf("%d answered, %d refused, failed %v; the slowest took %.2f s, the longest gap was %.2f s", f.answered, f.refused, f.failed, f.slowest.Seconds(), f.gap.Seconds())
}

// restarted waits until the pod's first app container runs for the second time, and is ready.
func (n *namespace) restarted(p corev1.Pod) {
	n.T.Helper()
	n.Until("was restarted", func() error {
		now, err := client.CoreV1().Pods(n.Name).Get(n.T.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range now.Status.ContainerStatuses {
			switch {
			case c.Name == "app" && (c.RestartCount != 1 || c.State.Running == nil || !c.Ready):
				return fmt.Errorf("%d restarts, ready %v", c.RestartCount, c.Ready)
			case c.Name != "app" && c.RestartCount > 0:
				n.T.Fatalf("container %s was restarted, too", c.Name)
			}
		}
		for _, c := range now.Status.InitContainerStatuses {
			if c.RestartCount > 0 {
				n.T.Fatalf("container %s was restarted, too", c.Name)
			}
		}
		return nil
	})
}

// killed is when the agent took the app's hook for a restart, which is 0.75 s after the kubelet called it. The kubelet's
// There is an Event as well, but the kubelet drops Events while thousands of pods are created.
func (n *namespace) killed(p corev1.Pod) (at time.Time) {
	n.T.Helper()
	n.Until("logged that a container is being restarted", func() error {
		out, err := n.TryKubectl("", "logs", p.Name, "-c", "lastcall")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "app container restart detected") {
				stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
				at, err = time.Parse(time.RFC3339Nano, stamp)
				return err
			}
		}
		return errors.New("not yet")
	})
	return at
}

// TestContainerRestarts has one container restarted by its liveness probe. The kubelet calls its preStop as it does when
// the pod ends; but the pod continues, and no client may notice.
func TestContainerRestarts(t *testing.T) {
	for _, sidecar := range []string{"native", "classic", "none"} {
		t.Run(sidecar, func(t *testing.T) {
			t.Parallel()
			labels := map[string]string(nil)
			if sidecar == "none" { // for comparison
				labels = map[string]string{}
			}
			n := newNamespace(t, labels)
			probe, fail := liveness(t)
			p := n.start(app{name: "web", annotations: map[string]string{"lastcall.dev/sidecar": sidecar}, more: probe})
			load := startFresh(url(p, "/get"))
			fail()
			n.restarted(p)
			load.stop()
			t.Log(load)
			if sidecar == "none" {
				return
			}
			if load.refused > 0 || len(load.failed) > 0 {
				t.Error("requests were lost")
			}
			// The end of the pod is still an end.
			asked := n.begin(p, "/delay/6")
			n.Kubectl("delete", "pod", p.Name, "--wait=false")
			wantOK(t, <-asked)
			n.gone(p)
		})
	}
}

// TestContainerRestartsHanging has a request hang in the container that is restarted. It must not keep the container:
// before, it did for 28 s.
func TestContainerRestartsHanging(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, nil)
	probe, fail := liveness(t)
	p := n.start(app{name: "web", more: probe})
	hanging := n.begin(p, "/delay/60")
	load := startFresh(url(p, "/get"))
	fail()
	if a := <-hanging; a.err != nil || a.code != http.StatusServiceUnavailable {
		t.Errorf("the request that hangs: %d after %v, %v; want 503 when its container ends", a.code, a.took, a.err)
	}
	ended := time.Now()
	held := ended.Sub(n.killed(p))
	n.restarted(p)
	load.stop()
	t.Logf("the request has ended %v after the kubelet began the restart; %v", held.Round(100*time.Millisecond), load)
	if held > 15*time.Second {
		t.Errorf("the request has held its container for %v", held)
	}
	if load.refused > 0 || len(load.failed) > 0 {
		t.Error("requests were lost")
	}
}

// TestOneOfTwoContainersRestarts keeps a connection to the other one open all the time.
func TestOneOfTwoContainersRestarts(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, nil)
	probe, fail := liveness(t)
	p := n.start(app{name: "web", more: probe + fmt.Sprintf(second, *tag)})
	kept := &http.Client{Timeout: patience, Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer kept.CloseIdleConnections()
	other := "http://" + p.Status.PodIP + ":8081/get"
	stop, done, asked := make(chan struct{}), make(chan error, 1), 0
	go func() {
		for ; ; asked++ {
			response, err := kept.Get(other)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK || response.Close {
					err = fmt.Errorf("%s, Connection: close %v", response.Status, response.Close)
				}
			}
			if err != nil {
				done <- err
				return
			}
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	load := startFresh(url(p, "/get"))
	fail()
	n.restarted(p)
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("the other container, after %d answers: %v", asked, err)
	}
	load.stop()
	t.Logf("%v; the other container has answered %d times on one connection", load, asked)
	if load.refused > 0 || len(load.failed) > 0 {
		t.Error("requests were lost")
	}
	out, err := n.TryKubectl("", "logs", p.Name, "-c", "lastcall")
	if err != nil || strings.Contains(out, "drain phase") {
		t.Errorf("a drain has begun (%v):\n%s", err, out)
	}
}
