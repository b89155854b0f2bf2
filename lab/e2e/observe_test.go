//go:build e2e

package e2e

import (
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/kube/observe"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// observerRelease is the namespace of the observer.
const observerRelease = nodetest.ObserverNamespace

var (
	terminations = flag.Int("terminations", 0, "how many ends TestObserve makes, at least; 0: one of each kind")
	observeSeed  = flag.Uint64("observe-seed", 1, "seed of the clients of TestObserve")
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
		if nodetest.IsReady(&pods.Items[0]) {
			t.Error("Kubernetes takes it for ready")
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

// ending is one end of a pod, and what it did to its clients.
type ending struct {
	way
	protocol   string
	busy, idle int

	truth  int              // what clients lost
	report *nodetest.Report // what the observer says
	wrong  string           // how that is wrong; empty: not at all
}

func (e *ending) name() string { return e.way.name + "," + e.protocol }

// clients end a pod under the load of busy and idle clients, and of new ones for a while. They count what they lose.
func (e *ending) clients(n *namespace, p *corev1.Pod, from inside) {
	n.T.Helper()
	talk := protocols[e.protocol]
	var lost atomic.Int64
	var asking sync.WaitGroup
	connect := func() (net.Conn, asker) {
		c, err := from.dial(n.T.Context(), net.JoinHostPort(p.Status.PodIP, talk.port))
		must.Do(n.T, err)
		n.T.Cleanup(func() { _ = c.Close() })
		return c, talk.talk(c)
	}
	if !strings.HasPrefix(e.protocol, "websocket") { // no WebSocket is idle
		for range e.idle {
			if _, ask := connect(); ask(0)() > 0 {
				n.T.Fatal("the app does not answer")
			}
		}
	}
	for range e.busy {
		c, ask := connect()
		if talk.later {
			ask(0)()
		}
		waits := ask(e.hold)
		asking.Go(func() {
			lost.Add(int64(waits()))
			_ = c.Close()
		})
	}
	time.Sleep(300 * time.Millisecond) // until all requests are with the app; a later one would be a new connection
	if e.fail != "" {
		e.failed(n, p, from, &lost)
	}
	var err error
	if e.evicted {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: n.Name}}
		err = client.PolicyV1().Evictions(n.Name).Evict(n.T.Context(), eviction)
	} else {
		err = client.CoreV1().Pods(n.Name).Delete(n.T.Context(), p.Name, metav1.DeleteOptions{})
	}
	must.Do(n.T, err)
	for range e.late {
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(n.T.Context(), time.Second)
		c, err := from.dial(ctx, net.JoinHostPort(p.Status.PodIP, talk.port))
		cancel()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED),
			errors.Is(err, syscall.ECONNRESET): // the listener was closed behind the handshake
			lost.Add(1)
			continue
		case err != nil: // its network is gone
			asking.Wait()
			e.truth = int(lost.Load())
			return
		}
		asking.Go(func() {
			lost.Add(int64(talk.talk(c)(0)()))
			_ = c.Close()
		})
	}
	asking.Wait()
	e.truth = int(lost.Load())
}

// failed has the app's container end, and waits until the pod is to be deleted.
func (e *ending) failed(n *namespace, p *corev1.Pod, from inside, lost *atomic.Int64) {
	c, err := from.dial(n.T.Context(), net.JoinHostPort(p.Status.PodIP, "8080"))
	must.Do(n.T, err)
	lost.Add(int64(overHTTP("/fail/" + e.fail + "?%g")(c)(time.Second)()))
	_ = c.Close()
	if e.again > 0 {
		time.Sleep(e.again)
		return
	}
	n.Until("ran again", func() error {
		now, err := client.CoreV1().Pods(n.Name).Get(n.T.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := now.Status.ContainerStatuses[0]; s.RestartCount == 0 || !s.Ready {
			return fmt.Errorf("%+v", s.State)
		}
		return nil
	})
}

// judge compares the observer's report with what the clients counted.
func (e *ending) judge(t *testing.T, r nodetest.Report) {
	t.Helper()
	e.report, e.wrong = &r, r.Wrong(e.truth)
	if e.wrong != "" {
		t.Errorf("%s: %s, %d busy, %d idle: clients lost %d; the observer says %d to %d:\n%s", e.wrong, e.name(),
			e.busy, e.idle, e.truth, r.Least, r.Most, strings.Join(r.Lines, "\n"))
	}
}

// TestObserve compares the observer's bounds with the count of clients: no end may have a loss that was none, be clean
// with a loss, or have lost more or less than the bounds say. How wide they are is judged with -terminations only.
func TestObserve(t *testing.T) {
	observer(t)
	bare, injected := newNamespace(t, map[string]string{"lastcall.dev/inject": "false"}), newNamespace(t, nil)
	from := bare.client()
	reports := nodetest.Follow(t, client)
	random := rand.New(rand.NewPCG(*observeSeed, 0))
	all, rounds := corpus(t), 1
	if *terminations > 0 {
		all = append(all, moreOfCorpus(t)...)
		kinds := 0
		for _, w := range all {
			kinds += len(strings.Fields(w.protocols))
		}
		rounds = (*terminations + kinds - 1) / kinds
	}
	var ends []*ending
	t.Run("kinds", func(t *testing.T) {
		for round := range rounds {
			for _, w := range all {
				for _, protocol := range strings.Fields(w.protocols) {
					e := &ending{way: w, protocol: protocol, busy: 4, idle: 2}
					if *terminations > 0 {
						e.busy, e.idle = random.IntN(9), random.IntN(6)
					}
					ends = append(ends, e)
					t.Run(e.name(), func(t *testing.T) {
						t.Parallel()
						n := &namespace{&nodetest.Namespace{T: t, Name: bare.Name, Client: client, Patience: patience}}
						if e.inject {
							n.Name = injected.Name
						}
						name := fmt.Sprintf("%s-%s-%d", w.name, protocol, round)
						n.Apply(e.manifest(name))
						p := n.Ready(name)
						e.clients(n, p, from)
						e.judge(t, reports.Of(t, p.UID, patience))
					})
				}
			}
		}
	})
	summarize(t, ends)
}

// summarize prints what the ends of each kind came to, and judges the shares.
func summarize(t *testing.T, ends []*ending) {
	type sums struct{ ends, truth, least, most, clean, unclear, unknown, lost, wrong int }
	kinds := map[string]*sums{}
	var names []string
	var all, http, narrow, nothing, doubtful int
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for _, e := range ends {
		if e.report == nil {
			continue // left out by -run, or failed
		}
		s, r := kinds[e.name()], e.report
		if s == nil {
			s = &sums{}
			kinds[e.name()], names = s, append(names, e.name())
		}
		all++
		s.ends, s.truth, s.least, s.most = s.ends+1, s.truth+e.truth, s.least+r.Least, s.most+r.Most
		count(&s.clean, r.Clean)
		count(&s.lost, r.Least > 0)
		count(&s.unclear, r.Least == 0 && !r.Clean && !r.Unknown)
		count(&s.unknown, r.Least == 0 && !r.Clean && r.Unknown)
		count(&s.wrong, e.wrong != "")
		isHTTP := slices.Contains([]string{"http", "kept", "loop"}, e.protocol)
		count(&http, isHTTP)
		count(&narrow, isHTTP && r.Most-r.Least <= 2 && !r.Unbounded)
		count(&nothing, e.truth == 0)
		count(&doubtful, e.truth == 0 && r.Least == 0 && !r.Clean)
	}
	table := "| end, clients | ends | lost by clients | by the observer, at least | at most | clean | unclear | unknown | " +
		"lost | wrong |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
	for _, name := range names {
		s := kinds[name]
		table += fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", name, s.ends, s.truth, s.least, s.most,
			s.clean, s.unclear, s.unknown, s.lost, s.wrong)
	}
	t.Logf("%d ends of %d kinds\n%s%d of %d ends of plain HTTP have bounds at most 2 apart; "+
		"%d of %d that lost nothing are unclear or unknown", all, len(names), table, narrow, http, doubtful, nothing)
	if *terminations > 0 && (10*narrow < 9*http || 20*doubtful > nothing) {
		t.Error("the aims are 9 of 10, and 1 of 20")
	}
}
