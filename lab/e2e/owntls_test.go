//go:build e2e

package e2e

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

var comparisons = flag.Bool("comparisons", false, "also make the rollouts whose losses have no limit")

// compares reports whether such a rollout is made.
func compares(t *testing.T, name string) bool {
	t.Helper()
	if !*comparisons {
		t.Logf("%s: only with -comparisons, since its losses have no limit", name)
	}
	return *comparisons
}

// TestOwnTLS replaces 4 replicas of an app that terminates its TLS, while 60 clients keep their connections and send POSTs
// of 20 ms to 6 s whose bodies cannot be sent again. Only the app can end such connections between two requests, and Go's
// Shutdown cuts a request that crosses the end of its idle connection: 0 to 2 on an idle machine, and 10 at a load of 5.
func TestOwnTLS(t *testing.T) {
	const name, requests, grace = "web", 1351, 30 * time.Second
	const crossed = 20 // half of what a wrong guess loses
	own := func(app string) map[string]string {
		return map[string]string{"lastcall.dev/app": app}
	}
	for _, way := range []struct {
		name        string
		labels      map[string]string
		annotations map[string]string
		mode        string // of talk
		most        [2]int // lost, with HTTP/1.1 and HTTP/2; -1: any number
	}{
		{"finishes", nil, own("finishes"), "shutdown", [2]int{crossed, crossed}},
		{"finishes, classic", nil, map[string]string{"lastcall.dev/app": "finishes", "lastcall.dev/sidecar": "classic"}, "shutdown", [2]int{crossed, -1}},
		{"auto, an app that finishes", nil, nil, "shutdown", [2]int{crossed, -1}},
		{"exits", nil, own("exits"), "exit", [2]int{crossed, -1}},
		{"finishes, a wrong guess: an app that exits", nil, own("finishes"), "exit", [2]int{-1, -1}},
		{"bare, an app that finishes", map[string]string{}, nil, "shutdown", [2]int{-1, -1}},
		{"bare, an app that exits", map[string]string{}, nil, "exit", [2]int{-1, -1}},
	} {
		for i, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			if way.most[i] < 0 && !compares(t, way.name+", "+protocol) {
				continue
			}
			t.Run(way.name+", "+protocol, func(t *testing.T) {
				n := newNamespace(t, way.labels)
				n.Apply(app{
					name: name, image: "local/talk:" + *tag, args: []string{"app", "-on-term", way.mode, "-tls"}, replicas: 4, annotations: way.annotations,
					probe: "httpGet: {path: /get, port: http, scheme: HTTPS}",
				}.manifest())
				n.Available(name)
				var stop atomic.Bool
				loaded := make(chan *loadtest.Load)
				go func() { loaded <- keptTLS("https://"+n.address(name, 80), i == 1, &stop, requests) }()
				time.Sleep(3 * time.Second)
				old := n.pods(name)
				n.Kubectl("rollout", "restart", "deployment", name)
				n.Available(name)
				longest := n.ends(old)
				stop.Store(true)
				r := <-loaded
				ends := n.Kubectl("get", "events", "--field-selector", "reportingComponent=lastcall.dev/webhook", "-o", "custom-columns=REASON:.reason,MESSAGE:.message", "--no-headers")
				t.Logf("%s, %s: %v; gone after at most %.1f s\n%s", way.name, protocol, r, longest.Seconds(), ends)
				if way.mode == "shutdown" && way.annotations != nil && longest > grace-5*time.Second {
					t.Errorf("a pod whose app finishes was held to its last call: gone after %v", longest)
				}
				if most := way.most[i]; most >= 0 && r.Failed() > most || r.Requests < requests {
					t.Errorf("%v; want at most %d of at least %d", r, most, requests)
				}
			})
		}
	}
}

// ends waits until the pods are gone, and returns the longest time that one took from its deletion.
func (n *namespace) ends(pods []corev1.Pod) (longest time.Duration) {
	n.T.Helper()
	began := map[types.UID]time.Time{}
	n.Until("lost the pods", func() error {
		var left []error
		for _, p := range pods {
			now, err := client.CoreV1().Pods(n.Name).Get(n.T.Context(), p.Name, metav1.GetOptions{})
			switch at, isBegun := began[p.UID]; {
			case err == nil && now.UID == p.UID:
				left = append(left, fmt.Errorf("%s is %s", p.Name, now.Status.Phase))
				// The kubelet deletes the pod once more when its containers are gone, with a grace period of 0.
				if d := now.DeletionGracePeriodSeconds; d != nil && !isBegun {
					began[p.UID] = now.DeletionTimestamp.Add(-time.Duration(*d) * time.Second)
				}
			case isBegun:
				longest = max(longest, time.Since(at))
				delete(began, p.UID)
			}
		}
		return errors.Join(left...)
	})
	return longest
}

// keptTLS has 60 clients with connections of their own; with HTTP/2 five of six share one. It ends when stop is set and
// enough requests have been made.
func keptTLS(url string, http2 bool, stop *atomic.Bool, least int) *loadtest.Load {
	r, requests := &loadtest.Load{}, atomic.Int64{}
	transport := func() *http.Client {
		return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	}
	shared := transport()
	var clients sync.WaitGroup
	for i := range 60 {
		c := transport()
		if http2 && i%6 != 0 {
			c = shared
		}
		clients.Go(func() {
			defer c.CloseIdleConnections()
			for requests.Load() < int64(least) || !stop.Load() {
				requests.Add(1)
				takes := 0.02 + rand.Float64()/10
				if rand.IntN(10) == 0 {
					takes = 6 * rand.Float64()
				}
				body := io.MultiReader(strings.NewReader("x")) // which no client library can send again
				r.End(post(c, fmt.Sprintf("%s/delay/%.3f", url, takes), body))
				time.Sleep(time.Duration(rand.ExpFloat64() * 0.3 * float64(time.Second)))
			}
		})
	}
	clients.Wait()
	r.Requests = int(requests.Load())
	return r
}
