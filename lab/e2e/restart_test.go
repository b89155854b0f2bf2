//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
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

// fresh begins 20 requests a second, each on a connection of its own, which end ends.
func fresh(url string) (end func() *loadtest.Load) {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, cancel := context.WithCancel(context.Background())
	made := make(chan *loadtest.Load, 1)
	go func() {
		made <- loadtest.AtRate(ctx, 20, func(int) (why string) {
			request, err := http.NewRequest(http.MethodGet, url, nil)
			if err != nil {
				return err.Error()
			}
			return loadtest.Send(c, request)
		})
	}()
	return func() *loadtest.Load { cancel(); return <-made }
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

// TestContainerRestarts has one container restarted by its liveness probe. The kubelet calls its preStop as it does when
// the pod ends; but the pod continues, and no client may notice.
func TestContainerRestarts(t *testing.T) {
	t.Parallel()
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
			end := fresh(url(p, "/get"))
			fail()
			n.restarted(p)
			load := end()
			t.Log(load)
			if sidecar == "none" {
				return
			}
			if load.Failed() > 0 {
				t.Error("requests were lost")
			}
			// The end of the pod is still an end.
			reply := n.begin(p, "/delay/6")
			n.Kubectl("delete", "pod", p.Name, "--wait=false")
			wantOK(t, <-reply)
			n.gone(p)
		})
	}
}

// hangs is an app that after GET /hang answers nothing, but ends at SIGTERM. Its log has the times: CRI stamps each
// line.
const hangs = `
import http.server, os, signal, time
hanging = False
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global hanging
        if hanging:
            print("unanswered", self.path, self.client_address[0], flush=True)
            time.sleep(3600)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        hanging = self.path == "/hang"
    def log_message(self, *_):
        pass
def end(*_):
    print("signalled", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
server = http.server.ThreadingHTTPServer(("", 8080), App)
print("started", flush=True)
server.serve_forever()
`

// logged is when a container wrote its first line that begins with a text.
func (n *namespace) logged(p corev1.Pod, text string, flags ...string) (at time.Time) {
	n.T.Helper()
	n.Until("logged "+text, func() error {
		out, err := n.TryKubectl("", append([]string{"logs", p.Name, "-c", "app", "--timestamps"}, flags...)...)
		for line := range strings.Lines(out) {
			if stamp, rest, _ := strings.Cut(line, " "); err == nil && strings.HasPrefix(rest, text) {
				at, err = time.Parse(time.RFC3339Nano, stamp)
				return err
			}
		}
		return fmt.Errorf("%w:\n%s", cmp.Or(err, errors.New("not yet")), out)
	})
	return at
}

// TestContainerRestartsWithoutProxy has the app hang, with a client's request in it, until it fails its liveness probe. The
// hook without a proxy must not wait for that request, as it does at the end of the pod: that took 25 s.
func TestContainerRestartsWithoutProxy(t *testing.T) {
	for _, proxy := range []string{"sockets", "bare"} {
		t.Run(proxy, func(t *testing.T) {
			t.Parallel()
			labels, annotations := map[string]string{}, map[string]string(nil) // for comparison
			if proxy != "bare" {
				labels, annotations = nil, map[string]string{"lastcall.dev/proxy": proxy}
			}
			n := newNamespace(t, labels)
			p := n.start(app{
				name: "web", image: "local/httpbin:" + *tag, args: []string{"-c", hangs}, annotations: annotations,
				more: "        livenessProbe: {httpGet: {path: /live, port: http}, periodSeconds: 1, failureThreshold: 2}",
			})
			if code, _, err := get(t.Context(), url(p, "/hang")); err != nil || code != http.StatusOK {
				t.Fatalf("%d, %v", code, err)
			}
			cut := make(chan error, 1)
			go func() {
				_, _, err := get(context.WithoutCancel(t.Context()), url(p, "/request"))
				cut <- err
			}()
			n.restarted(p)
			if err := <-cut; err == nil {
				t.Error("the request was answered by an app that hangs")
			}
			failed := n.logged(p, "unanswered /live", "--previous")
			signalled, started := n.logged(p, "signalled", "--previous"), n.logged(p, "started")
			took := signalled.Sub(failed)
			t.Logf("from the first probe that fails, SIGTERM came after %.1f s, and the next container served after %.1f s",
				took.Seconds(), started.Sub(failed).Seconds())
			if took > 15*time.Second {
				t.Errorf("the hook has held the container for %v", took)
			}
			if proxy == "bare" {
				return
			}
			n.Until("there was an Event about the restart", func() error {
				out := n.Kubectl("get", "events", "--field-selector", "involvedObject.name="+p.Name)
				if strings.Contains(out, "DrainCut") {
					t.Fatalf("the restart counts as the end of the pod:\n%s", out)
				}
				if !strings.Contains(out, "AppRestarted") {
					return errors.New(out)
				}
				return nil
			})
		})
	}
}
