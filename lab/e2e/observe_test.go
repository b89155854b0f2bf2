//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clients "github.com/lastcall-dev/lastcall/internal/sidecar/load"
	"github.com/lastcall-dev/lastcall/kube/losses"
	"github.com/lastcall-dev/lastcall/kube/observe"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// observerRelease is the namespace of the observer.
const observerRelease = nodetest.ObserverNamespace

var (
	terminations = flag.Int("terminations", 0, "how many terminations TestObserve makes; 0: one of each kind")
	observeSeed  = flag.Uint64("observe-seed", 1, "seed of the terminations of TestObserve")
)

// observer has the chart install the observer until the end of the test.
func observer(t *testing.T) {
	t.Helper()
	nodetest.Observer(t, "../..", *tag, patience)
}

// TestObserverRights takes a capability away from the observer: it is not ready, and reports the reason.
func TestObserverRights(t *testing.T) {
	nodetest.ApplyObserver(t, "../..", *tag, "add: [SYS_ADMIN, SYS_PTRACE]", "add: [SYS_ADMIN]")
	n := existing(t, observerRelease)
	n.Until("reported what it lacks", func() error {
		pods, err := client.CoreV1().Pods(n.Name).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=observer"})
		if err != nil || len(pods.Items) == 0 || pods.Items[0].Status.PodIP == "" {
			return errors.Join(err, errors.New("it has no address"))
		}
		response, err := http.Get("http://" + net.JoinHostPort(pods.Items[0].Status.PodIP, "9090") + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		if err != nil || !strings.Contains(string(text), "SYS_PTRACE") || response.StatusCode != http.StatusServiceUnavailable || strings.Contains(string(text), "listed") {
			return errors.Join(err, fmt.Errorf("%d %s", response.StatusCode, text))
		}
		for _, c := range pods.Items[0].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				t.Error("Kubernetes takes it for ready")
			}
		}
		t.Logf("%s", text)
		return nil
	})
}

// observed is the observer's report about a pod.
func (n *namespace) observed(p corev1.Pod) observe.Termination {
	n.T.Helper()
	return n.Observed(&p)
}

// span is when something happened: after from and before to.
type span struct{ from, to time.Time }

// since is how long after another span it was, at least and at most.
func (s span) since(other span) (least, most time.Duration) {
	return s.from.Sub(other.to), s.to.Sub(other.from)
}

// off is how far a time is from what clients know: 0 between least and most.
func off(d, least, most time.Duration) time.Duration {
	return max(least-d, d-most, 0)
}

// crowd is the clients of one pod, which count their own losses.
type crowd struct {
	lost, refused, answered int
	deleted                 span // the request to the API server
	accepted                span // the connect and the request of the last connection that was accepted
}

// askOn sends a request on a connection. What it returns reports whether the response was complete.
func askOn(c net.Conn, path string) func() bool {
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path)
	return func() bool {
		if err != nil {
			return false
		}
		response, err := clients.Receive(bufio.NewReader(c))
		return err == nil && response.StatusCode == http.StatusOK
	}
}

// terminated deletes a pod under the load of busy and idle clients, and of new ones for a while.
func (n *namespace) terminated(p corev1.Pod, how kind, from inside, busy, idle int) (c crowd) {
	n.T.Helper()
	var mu sync.Mutex // guards c
	var asking sync.WaitGroup
	defer asking.Wait()
	connect := func() conversation {
		talk, err := how.converse(n.T.Context(), from, p)
		if err != nil {
			n.T.Fatal(err)
		}
		return talk
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
		talk := connect()
		defer talk.close()
		if !talk.brief()() {
			n.T.Fatal("the app does not answer")
		}
	}
	for range busy {
		talk := connect()
		asking.Go(func() {
			defer talk.close()
			count(talk.long()())
		})
	}
	time.Sleep(300 * time.Millisecond) // until all requests are with the app; a later one would be a new connection
	c.deleted.from = time.Now()
	if err := client.CoreV1().Pods(n.Name).Delete(n.T.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		n.T.Fatal(err)
	}
	c.deleted.to = time.Now()
	for range how.late {
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(n.T.Context(), time.Second)
		connect := span{from: time.Now()}
		talk, err := how.converse(ctx, from, p)
		connect.to = time.Now()
		cancel()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			mu.Lock()
			c.refused++
			mu.Unlock()
			continue
		case errors.Is(err, syscall.ECONNRESET): // the listener was closed behind the handshake
			mu.Lock()
			c.lost, c.accepted = c.lost+1, connect
			mu.Unlock()
			continue
		case err != nil: // its network is gone
			return c
		}
		mu.Lock()
		answered := talk.brief()
		connect.to = time.Now() // the kernel's first sign of a connection is its request
		c.accepted = connect
		mu.Unlock()
		asking.Go(func() {
			defer talk.close()
			count(answered())
		})
	}
	asking.Wait()
	return c
}

// tally is what the terminations of one kind, or of all, came to.
type tally struct{ made, lost, counted, clean, unknown int }

func (t *tally) add(lost, counted int, verdict string) {
	t.made, t.lost, t.counted = t.made+1, t.lost+lost, t.counted+counted
	switch verdict {
	case losses.Clean:
		t.clean++
	case losses.Unknown:
		t.unknown++
	}
}

// spread is the median and the longest of some times.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return fmt.Sprintf("a median of %v, at most %v (%d)", all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond), len(all))
}

// TestObserve compares the observer's numbers with those of clients that count their own losses. How far its times are from
// theirs is printed, not judged: it depends on the machine's other work.
func TestObserve(t *testing.T) {
	observer(t)
	bare, injected := newNamespace(t, map[string]string{"lastcall.dev/inject": "false"}), newNamespace(t, nil)
	from := bare.client()
	random := rand.New(rand.NewPCG(*observeSeed, 0))
	all, rounds := kinds(t), 1
	if *terminations > 0 {
		all = append(all, moreKinds(t)...)
		rounds = (*terminations + len(all) - 1) / len(all)
	}
	var mu sync.Mutex // guards what follows
	tallies := map[string]*tally{}
	var http1 tally                              // all kinds whose requests the kernel's counters can show
	var lateness, arrival, began []time.Duration // off by so much; the last one in addition to the deletion
	t.Run("kinds", func(t *testing.T) {
		for _, how := range all {
			plan := make([][2]int, rounds)
			for i := range plan {
				plan[i] = [2]int{random.IntN(12), random.IntN(12)}
				if *terminations == 0 {
					plan[i] = [2]int{8, 5}
				}
			}
			sum := &tally{}
			tallies[how.name] = sum
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
					c := n.terminated(pod, how, from, crowd[0], crowd[1])
					r := n.observed(pod)
					n.gone(pod)
					got := r.Traffic.Lost.Reset + r.Traffic.Lost.Unanswered
					t.Logf("busy %d idle %d: clients lost %d, refused %d, answered %d, the last one connected %v after the deletion; observer: %s (%s); it began %v after the deletion", crowd[0], crowd[1],
						c.lost, c.refused, c.answered, c.accepted.to.Sub(c.deleted.to), r.Summary(), r.Verdict, r.Began.Sub(c.deleted.to))
					late := time.Duration(r.Lateness * float64(time.Second))
					mu.Lock()
					sum.add(c.lost, got, r.Verdict)
					began = append(began, r.Began.Sub(c.deleted.to))
					if how.asks != "grpc" { // a connection of HTTP/2 carries more than requests
						http1.add(c.lost, got, r.Verdict)
					}
					if c.refused == 0 && !c.accepted.to.IsZero() {
						least, most := c.accepted.since(c.deleted)
						lateness = append(lateness, off(late, least, most))
						if c.accepted.from.After(r.Began) {
							arrival = append(arrival, off(late, c.accepted.from.Sub(r.Began), c.accepted.to.Sub(r.Began)))
						}
					}
					mu.Unlock()
					if got != c.lost {
						t.Logf("DIFFERENT: the observer counted %d lost requests, the clients %d: %+v", got, c.lost, r.Traffic)
					}
					if how.asks == "grpc" {
						continue
					}
					if r.Verdict == losses.Clean && c.lost+c.refused > 0 || r.Verdict == losses.Lost && c.lost+c.refused == 0 {
						t.Errorf("verdict %s: clients lost %d, refused %d: %+v", r.Verdict, c.lost, c.refused, r.Traffic)
					}
					if (how.killed && crowd[0] > 0) != (len(r.Killed) > 0) {
						t.Errorf("SIGKILL ended %q", r.Killed)
					}
				}
			})
		}
	})
	for _, how := range all {
		sum := tallies[how.name]
		t.Logf("%-16s %3d terminations, clients lost %3d, the observer counted %3d; %d clean, %d unknown", how.name, sum.made, sum.lost, sum.counted, sum.clean, sum.unknown)
	}
	t.Logf("of %d terminations without gRPC's, clients lost %d requests, the observer counted %d; %d clean, %d unknown", http1.made, http1.lost, http1.counted, http1.clean, http1.unknown)
	t.Logf("the lateness is off by %s; the last arrival itself by %s; the beginning is after the API server's answer to the deletion by %s", spread(lateness), spread(arrival), spread(began))
	if difference := http1.counted - http1.lost; 50*max(difference, -difference) > http1.lost {
		t.Errorf("the observer counted %d of %d lost requests: more than 2 %% off", http1.counted, http1.lost)
	}
}
