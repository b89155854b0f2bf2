//go:build e2e

package mesh

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// scene is one pod's end.
type scene struct {
	form
	kind   string // of the conversation
	inside bool   // the client is in the mesh, and mTLS is required
	hold   time.Duration
	grace  int // s
	more   string
}

func (s scene) String() string {
	client := "plaintext"
	if s.inside {
		client = "STRICT"
	}
	return fmt.Sprintf("%s/%s/%s", s.form.name, s.kind, client)
}

// ending has the measured times, s after the pod was deleted.
type ending struct {
	outcome
	IdleClosed                                                         int
	Answered, Gone, HookStart, HookReturn, AppEnd, ProxyTerm, ProxyEnd float64
	AppSignalled, LogWhole                                             bool
	Logged, Expected                                                   int
	Report                                                             string
}

func (e ending) afterLastByte() float64 { return e.Gone - e.Answered }

// perform lets a pod end during a conversation.
func (n *namespace) perform(s scene) (e ending) {
	n.T.Helper()
	n.Apply("apiVersion: v1\nkind: Pod\n" + strings.Replace(s.template(s.grace), "metadata:\n", "metadata:\n  name: web\n", 1) + service + s.more)
	p := n.Ready("web")
	target := p.Status.PodIP
	if s.inside {
		target = n.clusterIP("web")
	}
	w := watch(n.T, p)
	dial := n.from(s.inside)
	closed := idle(n.T, dial, target, idleClients)
	conversation := make(chan outcome, 1)
	go func() { conversation <- ask(n.T.Context(), s.kind, dial, target, s.hold) }()
	n.Until("had a conversation", func() error {
		if count(w.lines("app"), "begin ") == 0 {
			return errors.New("the app has none")
		}
		return nil
	})
	pods, err := client.CoreV1().Pods(n.Name).Watch(n.T.Context(), metav1.ListOptions{FieldSelector: "metadata.name=web", ResourceVersion: p.ResourceVersion})
	must.Do(n.T, err)
	defer pods.Stop()
	began := time.Now()
	must.Do(n.T, client.CoreV1().Pods(n.Name).Delete(n.T.Context(), "web", metav1.DeleteOptions{}))
	gone := n.deleted(pods)
	w.running.Wait()
	since := func(at time.Time) float64 {
		if at.IsZero() {
			return -1
		}
		return at.Sub(began).Seconds()
	}
	e.outcome = <-conversation
	app, proxy := w.lines("app"), w.lines("istio-proxy")
	hook := w.find("app", "lastcall wait")
	e.IdleClosed, e.Answered, e.Gone = int(closed.Load()), since(e.LastByte), since(gone)
	e.HookStart, e.HookReturn = since(hook.first), since(hook.last)
	e.AppEnd, e.ProxyTerm, e.ProxyEnd = since(w.find("app", "/talk app").last), since(when(proxy, "Status server has successfully terminated")), since(w.find("istio-proxy", "pilot-agent proxy").last)
	e.AppSignalled = count(app, "SIGTERM: exit") > 0
	e.Logged, e.Expected = s.logged(proxy), 1+e.Beside
	e.LogWhole = e.Logged == e.Expected && count(proxy, "/delay/0.3 ") == idleClients
	return e
}

// logged counts the requests of the conversation in the access log.
func (s scene) logged(lines []logLine) int {
	switch s.kind {
	case "grpc":
		return count(lines, "StreamingOutputCall HTTP/2")
	case "websocket":
		return count(lines, `"GET /echo HTTP/1.1`)
	}
	return count(lines, `"POST /delay/`)
}

func (n *namespace) deleted(pods apiwatch.Interface) time.Time {
	n.T.Helper()
	for limit := time.After(patience); ; {
		select {
		case event, open := <-pods.ResultChan():
			if !open || event.Type == apiwatch.Deleted {
				return time.Now()
			}
		case <-limit:
			n.T.Fatal("the pod is still there")
		}
	}
}

// check asserts what a form promises.
func (s scene) check(t *testing.T, e ending) {
	t.Helper()
	if !s.whole {
		return
	}
	if e.Error != "" || e.Lost > 0 {
		t.Errorf("cut: %q after %.1f s, %d of %d quick requests lost", e.Error, e.Answered, e.Lost, e.Beside)
	}
	if limit := s.hold.Seconds() + 8; e.Gone > limit {
		t.Errorf("gone after %.1f s: want less than %.0f s; idle clients must not hold it", e.Gone, limit)
	}
	if !e.AppSignalled {
		t.Error("the app did not get SIGTERM: it was killed")
	}
	if !e.LogWhole {
		t.Errorf("the access log has %d of the conversation's %d requests, or not all of the idle clients'", e.Logged, e.Expected)
	}
}

// row is a line of the table: medians of several ends.
func row(name string, all []ending) string {
	median := func(of func(ending) float64) string {
		values := make([]float64, len(all))
		for i, e := range all {
			values[i] = of(e)
		}
		slices.Sort(values)
		if values[0] < 0 {
			return "–"
		}
		return fmt.Sprintf("%.2f", values[len(values)/2])
	}
	cut, whole := 0, 0
	for _, e := range all {
		if e.Error != "" || e.Lost > 0 {
			cut++
		}
		if e.LogWhole {
			whole++
		}
	}
	after := median(ending.afterLastByte)
	if cut > 0 {
		after = "–"
	}
	return fmt.Sprintf("| %s | %d | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %d |", name, len(all), cut, median(func(e ending) float64 { return e.Answered }), median(func(e ending) float64 { return e.Gone }), after,
		median(func(e ending) float64 { return e.HookStart }), median(func(e ending) float64 { return e.HookReturn }), median(func(e ending) float64 { return e.AppEnd }),
		median(func(e ending) float64 { return e.ProxyTerm }), median(func(e ending) float64 { return e.ProxyEnd }), median(func(e ending) float64 { return float64(e.IdleClosed) }), whole)
}

const head = `| form, conversation, client | ends | cut | last byte | pod gone | after the last byte | hook starts | hook returns | app ended | istio-proxy's SIGTERM | pilot-agent ended | idle connections closed | access log whole |
|---|---|---|---|---|---|---|---|---|---|---|---|---|`

// record logs a row of a table.
func record(t *testing.T, head, line string) {
	t.Helper()
	t.Logf("\n%s\n%s", head, line)
}

// measure performs a scene -runs times and records it.
func (n *namespace) measure(s scene) {
	n.T.Helper()
	if s.inside {
		n.Apply(strict)
		n.inside()
	}
	var all []ending
	for range *runs {
		e := n.perform(s)
		s.check(n.T, e)
		n.T.Logf("%+v", e)
		all = append(all, e)
	}
	record(n.T, head, row(s.String(), all))
}

// TestEnd lets a pod end during a conversation of 10 s, with five idle connections.
func TestEnd(t *testing.T) {
	for _, f := range forms {
		for _, kind := range []string{"http1", "http2", "grpc", "websocket"} {
			for _, inside := range []bool{false, true} {
				s := scene{form: f, kind: kind, inside: inside, hold: 10 * time.Second}
				t.Run(s.String(), func(t *testing.T) {
					t.Parallel()
					newNamespace(t, f.labels).measure(s)
				})
			}
		}
	}
}
