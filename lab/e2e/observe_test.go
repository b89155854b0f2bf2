//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"slices"
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

// observer has the chart install the observer until the end of the test, with more flags.
func observer(t *testing.T, args ...string) {
	t.Helper()
	manifests, err := exec.Command("../../bin/chart", "template", "../../deploy/chart", "--namespace", observerRelease, "--version", *tag,
		"--set", "registry=localhost,webhook.enabled=false,observer.enabled=true").Output()
	if err != nil {
		t.Fatal("render the chart (make e2e builds bin/chart): ", err)
	}
	const flag = "            - --deadlines=true\n"
	for _, arg := range args {
		manifests = bytes.Replace(manifests, []byte(flag), []byte(flag+"            - "+arg+"\n"), 1)
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
	deleted                 time.Time // when the API server had answered
	last, accepted          time.Time // of the last new connection, and of the last that was accepted
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
		if !talk.brief() {
			n.T.Fatal("the app does not answer")
		}
	}
	for range busy {
		talk := connect()
		asking.Go(func() {
			defer talk.close()
			count(talk.long())
		})
	}
	time.Sleep(300 * time.Millisecond) // until all requests are with the app; a later one would be a new connection
	if err := client.CoreV1().Pods(n.Name).Delete(n.T.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		n.T.Fatal(err)
	}
	c.deleted = time.Now()
	for range how.late {
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(n.T.Context(), time.Second)
		now := time.Now()
		talk, err := how.converse(ctx, from, p)
		cancel()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			mu.Lock()
			c.refused, c.last = c.refused+1, now
			mu.Unlock()
			continue
		case errors.Is(err, syscall.ECONNRESET): // the listener was closed behind the handshake
			mu.Lock()
			c.lost, c.accepted, c.last = c.lost+1, now, now
			mu.Unlock()
			continue
		case err != nil: // its network is gone
			return c
		}
		mu.Lock()
		c.accepted, c.last = now, now
		mu.Unlock()
		asking.Go(func() {
			defer talk.close()
			count(talk.brief())
		})
	}
	asking.Wait()
	return c
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
		rounds = max(1, *terminations/len(all))
	}
	var mu sync.Mutex // guards what follows
	var made, lost, counted, unknown int
	var off, began []time.Duration // of the lateness, and of the beginning
	t.Run("kinds", func(t *testing.T) {
		for _, how := range all {
			plan := make([][2]int, rounds)
			for i := range plan {
				plan[i] = [2]int{random.IntN(12), random.IntN(12)}
				if *terminations == 0 {
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
					c := n.terminated(pod, how, from, crowd[0], crowd[1])
					r := n.observed(pod)
					n.gone(pod)
					got := r.Traffic.Lost.Reset + r.Traffic.Lost.Unanswered
					t.Logf("busy %d idle %d: clients lost %d, refused %d, answered %d; observer: %s (%s); it began %v after the deletion", crowd[0], crowd[1], c.lost, c.refused, c.answered,
						r.Summary(), r.Verdict, r.Began.Sub(c.deleted))
					mu.Lock()
					made++
					if began = append(began, r.Began.Sub(c.deleted)); r.Verdict == losses.Unknown {
						unknown++
					}
					if how.asks != "grpc" { // a connection of HTTP/2 carries more than requests
						lost, counted = lost+c.lost, counted+got
					}
					mu.Unlock()
					if c.refused == 0 && !c.accepted.IsZero() {
						late := c.accepted.Sub(r.Began) - time.Duration(r.Lateness*float64(time.Second))
						mu.Lock()
						off = append(off, late.Abs())
						mu.Unlock()
					}
					if got != c.lost && how.asks != "grpc" {
						t.Errorf("the observer counted %d lost requests, the clients %d: %+v", got, c.lost, r.Traffic)
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
	slices.Sort(off)
	slices.Sort(began)
	if made > 0 && len(off) > 0 {
		t.Logf("of %d terminations, clients lost %d requests, the observer counted %d; %d unknown; lateness off by a median of %v, at most %v (%d); it began %v to %v after the deletion, a median of %v",
			made, lost, counted, unknown, off[len(off)/2], off[len(off)-1], len(off), began[0], began[len(began)-1], began[len(began)/2])
	}
}
