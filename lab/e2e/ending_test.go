//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func url(p corev1.Pod, path string) string { return "http://" + p.Status.PodIP + ":8080" + path }

// busy waits until the pod's sidecar has n requests in flight.
func (n *namespace) busy(p corev1.Pod, want int) {
	n.T.Helper()
	n.Until(fmt.Sprintf("had %d requests in flight", want), func() error {
		response, err := http.Get("http://" + p.Status.PodIP + ":15020/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if line := fmt.Sprintf("lastcall_connections{state=\"busy\"} %d\n", want); err == nil && !strings.Contains(string(text), line) {
			err = errors.New("it has not")
		}
		return err
	})
}

type answer struct {
	code int
	took time.Duration
	err  error
}

// begin asks the pod for what takes its time, and returns when the sidecar has the request.
func (n *namespace) begin(p corev1.Pod, path string) <-chan answer {
	n.T.Helper()
	out := make(chan answer, 1)
	go func() {
		code, took, err := get(context.WithoutCancel(n.T.Context()), url(p, path))
		out <- answer{code, took, err}
	}()
	n.busy(p, 1)
	return out
}

func (n *namespace) start(a app) corev1.Pod {
	n.T.Helper()
	n.Apply(a.manifest())
	n.Available(a.name)
	return n.pods(a.name)[0]
}

func wantOK(t *testing.T, a answer) {
	t.Helper()
	if a.err != nil || a.code != http.StatusOK {
		t.Errorf("the request in flight: %d after %v, %v; want 200", a.code, a.took, a.err)
	}
}

// TestFixedWait has the wait of Istio's default hold the app's SIGTERM back, too: with a native sidecar, and an app that
// ends at once.
func TestFixedWait(t *testing.T) {
	t.Parallel()
	for _, sidecar := range []string{"native", "classic"} {
		t.Run(sidecar, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, nil)
			p := n.start(app{name: "web", annotations: map[string]string{
				"lastcall.dev/sidecar":  sidecar,
				"proxy.istio.io/config": `{terminationDrainDuration: 8s, proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: "false"}}`,
			}})
			reply := n.begin(p, "/delay/5")
			n.Kubectl("delete", "pod", p.Name, "--wait=false")
			wantOK(t, <-reply)
			n.gone(p)
		})
	}
}

// TestWithoutProxy has a pod without any: an image without a shell gets the program by an init container, and a preStop
// that watches the app's own connections.
func TestWithoutProxy(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, nil)
	p := n.start(app{name: "web", annotations: map[string]string{"lastcall.dev/proxy": "sockets"}})
	if isInjected(&p) {
		t.Fatal("there is a sidecar")
	}
	sent, answered := make(chan struct{}), make(chan answer, 1)
	go func() {
		ctx := httptrace.WithClientTrace(context.WithoutCancel(t.Context()), &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) },
		})
		code, took, err := get(ctx, url(p, "/delay/8"))
		answered <- answer{code, took, err}
	}()
	<-sent
	began := time.Now()
	n.Kubectl("delete", "deployment", "web")
	wantOK(t, <-answered)
	n.gone(p)
	t.Logf("gone after %.1f s", time.Since(began).Seconds())
}

// TestShorterGrace deletes a pod with less time than its manifest has, which only the kubelet knows. The request cannot
// be answered: its client sees the end of the app's connection, as without a sidecar, not a reset.
func TestShorterGrace(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, nil)
	p := n.start(app{name: "web"})
	reply := n.begin(p, "/delay/30")
	n.Kubectl("delete", "pod", p.Name, "--grace-period=4", "--wait=false")
	if a := <-reply; !errors.Is(a.err, io.EOF) {
		t.Errorf("%d after %v, %v; want %v", a.code, a.took, a.err, io.EOF)
	}
	n.gone(p)
}

// TestAppGoneFirst has a client that reads slowly: when the app has written everything and is gone, most of it is still
// on its way through the sidecar.
func TestAppGoneFirst(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	n := newNamespace(t, nil)
	p := n.start(app{
		name: "web", annotations: map[string]string{"lastcall.dev/pre-stop": "none"},
		args: []string{"httpbin", "--listen", ":8080", "--on-term", "close-listener"},
	})
	small := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return c, err
	}}}
	response, err := small.Get(url(p, fmt.Sprintf("/bytes/%d", size)))
	must.Do(t, err)
	defer func() { _ = response.Body.Close() }()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	_, err = first(id)
	must.Do(t, err)
	n.Kubectl("delete", "pod", p.Name, "--wait=false")
	n.Until("lost its app", func() error { // the pod's status changes only when all containers have ended
		if _, err := first(id); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	got, err := io.Copy(io.Discard, response.Body)
	if err != nil || got != size {
		t.Errorf("%d of %d bytes, %v", got, size, err)
	}
	n.gone(p)
}

// TestNeverReady deletes a pod whose app does not listen.
func TestNeverReady(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, nil)
	n.Apply(app{name: "web", args: []string{"httpbin", "--listen", ":8081"}}.manifest())
	var p corev1.Pod
	n.Until("ran", func() error {
		all := n.pods("web")
		if len(all) == 0 || all[0].Status.Phase != corev1.PodRunning {
			return errors.New("not yet")
		}
		p = all[0]
		return nil
	})
	began := time.Now()
	n.Kubectl("delete", "deployment", "web")
	n.gone(p)
	took := time.Since(began)
	t.Logf("gone after %.1f s", took.Seconds())
	if took > 30*time.Second { // the grace period
		t.Errorf("gone after %v: it was killed", took)
	}
}

// TestJobEnds has a job end whose sidecar would run on.
func TestJobEnds(t *testing.T) {
	t.Parallel()
	for _, sidecar := range []string{"native", "classic"} {
		t.Run(sidecar, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, nil)
			n.Apply(fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {lastcall.dev/sidecar: %q}}
    spec:
      restartPolicy: Never
      shareProcessNamespace: %v
      containers: [{name: work, image: "%s:%s", imagePullPolicy: Never, args: ["--version"]}]
`, sidecar, sidecar == "classic", builtIn, *tag))
			n.Kubectl("wait", "--for=condition=complete", "job/work", "--timeout", patience.String())
		})
	}
}
