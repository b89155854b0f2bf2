//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/losses"
	"github.com/lastcall-dev/lastcall/kube/observe"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// observerRelease is the namespace of the observer's own release of the chart: that of the webhook admits no such pods.
const observerRelease = "lastcall-observe"

var (
	terminations = flag.Int("terminations", 0, "how many terminations TestObserve makes; 0: one of each kind")
	observeSeed  = flag.Uint64("observe-seed", 1, "seed of the terminations of TestObserve")
)

// observer has the chart install the observer until the end of the test.
func observer(t *testing.T) {
	t.Helper()
	manifests, err := exec.Command("../../bin/chart", "template", "../../deploy/chart", "--namespace", observerRelease, "--version", *tag,
		"--set", "registry=localhost,webhook.enabled=false,observer.enabled=true").Output()
	if err != nil {
		t.Fatal("render the chart (make e2e builds bin/chart): ", err)
	}
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + observerRelease + ", labels: {pod-security.kubernetes.io/enforce: privileged}}\n"
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("kubectl", "--namespace", observerRelease, "logs", "daemonset/lastcall-observer", "--tail", "50").CombinedOutput()
			t.Logf("the observer:\n%s", out)
		}
		_ = onCluster(string(manifests), "delete", "--namespace", observerRelease, "-f", "-")
	})
	err = errors.Join(onCluster(namespace, "apply", "-f", "-"), onCluster(string(manifests), "apply", "--namespace", observerRelease, "-f", "-"),
		onCluster("", "rollout", "status", "daemonset", "lastcall-observer", "--namespace", observerRelease, "--timeout", patience.String()))
	if err != nil {
		t.Fatal(err)
	}
}

// observed is the observer's report about a pod.
func (n *namespace) observed(p corev1.Pod) (r observe.Termination) {
	n.T.Helper()
	n.Until("was in the observer's log", func() error {
		out, err := exec.Command("kubectl", "--namespace", observerRelease, "logs", "daemonset/lastcall-observer", "--tail", "-1").Output()
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, string(p.UID)) && json.Unmarshal([]byte(line), &r) == nil {
				return nil
			}
		}
		return errors.New("there is no line about it")
	})
	return r
}

// crowd is the clients of one pod, which count their own losses.
type crowd struct {
	lost, refused, answered int
	last                    time.Time // when the last new connection was made or refused
}

// askOn sends a request on a connection and reports whether the response was complete.
func askOn(c net.Conn, path string) bool {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path); err != nil {
		return false
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

// terminated deletes a pod under the load of busy and idle clients, and of new ones for a while.
func (n *namespace) terminated(p corev1.Pod, how kind, busy, idle int) (c crowd) {
	n.T.Helper()
	var mu sync.Mutex // guards c
	var asking sync.WaitGroup
	defer asking.Wait()
	at := net.JoinHostPort(p.Status.PodIP, "8080")
	dial := func() net.Conn {
		conn, err := net.DialTimeout("tcp", at, 5*time.Second)
		if err != nil {
			n.T.Fatal(err)
		}
		return conn
	}
	count := func(ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ok {
			c.answered++
		} else {
			c.lost++
		}
	}
	for range idle {
		conn := dial()
		defer func() { _ = conn.Close() }()
		if !askOn(conn, "/get") {
			n.T.Fatal("the app does not answer")
		}
	}
	for range busy {
		conn := dial()
		asking.Go(func() {
			defer func() { _ = conn.Close() }()
			count(askOn(conn, fmt.Sprintf("/delay/%g", how.hold.Seconds())))
		})
	}
	time.Sleep(300 * time.Millisecond) // until all requests are with the app; a later one would be a new connection
	if err := client.CoreV1().Pods(n.Name).Delete(n.T.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		n.T.Fatal(err)
	}
	for range how.late {
		time.Sleep(50 * time.Millisecond)
		conn, err := net.DialTimeout("tcp", at, time.Second)
		now := time.Now()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			mu.Lock()
			c.refused, c.last = c.refused+1, now
			mu.Unlock()
			continue
		case err != nil: // its network is gone
			return c
		}
		mu.Lock()
		c.last = now
		mu.Unlock()
		asking.Go(func() {
			defer func() { _ = conn.Close() }()
			count(askOn(conn, "/get"))
		})
	}
	asking.Wait()
	return c
}

// kind is an app and how it stops.
type kind struct {
	app
	inject bool
	hold   time.Duration // of a request that is in flight at the deletion
	late   int           // new connections after the deletion, every 50 ms
	killed bool
}

func httpbinArgs(onTerm string) []string {
	return []string{"httpbin", "--listen", ":8080", "--max-delay", "60s", "--on-term", onTerm}
}

var kinds = []kind{
	{app: app{name: "exits"}, hold: 20 * time.Second},
	{app: app{name: "closes-listener", args: httpbinArgs("close-listener")}, hold: 2 * time.Second, late: 10},
	{app: app{name: "shutdown", args: httpbinArgs("drain")}, hold: 2 * time.Second, late: 10},
	{app: app{name: "sleeps", more: "        lifecycle: {preStop: {sleep: {seconds: 3}}}"}, hold: time.Second, late: 20},
	{app: app{name: "killed", args: httpbinArgs("drain"), grace: 2}, hold: 20 * time.Second, killed: true},
	{app: app{name: "lastcall"}, inject: true, hold: 3 * time.Second, late: 20},
}

// TestObserve compares the observer's numbers with those of clients that count their own losses.
func TestObserve(t *testing.T) {
	observer(t)
	bare, injected := newNamespace(t, map[string]string{"lastcall.dev/inject": "false"}), newNamespace(t, nil)
	random := rand.New(rand.NewPCG(*observeSeed, 0))
	rounds := max(1, *terminations/len(kinds))
	var mu sync.Mutex // guards what follows
	var lost, counted int
	t.Run("kinds", func(t *testing.T) {
		for _, how := range kinds {
			plan := make([][2]int, rounds)
			for i := range plan {
				plan[i] = [2]int{random.IntN(12), random.IntN(12)}
				if rounds == 1 {
					plan[i] = [2]int{8, 5}
				}
			}
			t.Run(how.name, func(t *testing.T) {
				t.Parallel()
				n := &namespace{&nodetest.Namespace{T: t, Name: bare.Name, Client: client, Patience: patience}}
				if how.inject {
					n.Name = injected.Name
				}
				n.Apply(how.manifest())
				for _, crowd := range plan {
					n.Available(how.name)
					pod := n.pods(how.name)[0]
					c := n.terminated(pod, how, crowd[0], crowd[1])
					r := n.observed(pod)
					n.gone(pod)
					t.Logf("busy %d idle %d: clients lost %d, refused %d, answered %d; observer: %s (%s); the last arrival was %.2f s after the beginning", crowd[0], crowd[1], c.lost, c.refused, c.answered,
						r.Summary(), r.Verdict, max(0, c.last.Sub(r.Began).Seconds()))
					if how.late > 0 && c.refused == 0 && r.Probes == 0 { // the observer's is the upper bound of an interval, at most 1 s wide here
						if off := c.last.Sub(r.Began).Seconds() - r.Lateness; off < -1.1 || off > 0.3 {
							t.Errorf("the last new connection came %.2f s off the observer's %.2f s", off, r.Lateness)
						}
					}
					if got := r.Traffic.Lost.Reset + r.Traffic.Lost.Unanswered; got != c.lost {
						t.Errorf("the observer counted %d lost requests, the clients %d", got, c.lost)
					}
					if r.Verdict == losses.Clean && c.lost+c.refused > 0 || r.Verdict == losses.Lost && c.lost+c.refused == 0 {
						t.Errorf("verdict %s: clients lost %d, refused %d", r.Verdict, c.lost, c.refused)
					}
					if (how.killed && crowd[0] > 0) != (len(r.Killed) > 0) {
						t.Errorf("SIGKILL ended %q", r.Killed)
					}
					mu.Lock()
					lost, counted = lost+c.lost, counted+r.Traffic.Lost.Reset+r.Traffic.Lost.Unanswered
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("in all, clients lost %d requests, the observer counted %d", lost, counted)
}
