package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// container is one that ends some time after SIGTERM.
type container struct {
	takes time.Duration
	once  sync.Once
	done  chan struct{}
}

func newContainer(takes time.Duration) *container {
	return &container{takes: takes, done: make(chan struct{})}
}

func (c *container) end() { c.once.Do(func() { close(c.done) }) }

func (c *container) Terminate() error {
	time.AfterFunc(c.takes, c.end)
	return nil
}
func (c *container) Kill() error           { c.end(); return nil }
func (c *container) Done() <-chan struct{} { return c.done }

// scripted is an Envoy with a connection until some time. It is its own admin.
type scripted struct {
	*container
	until time.Duration // the connection's end
	fails bool          // the admin port refuses
	empty bool          // the stats matcher hides everything

	began time.Time
	mu    sync.Mutex // guards calls
	calls []string
}

var errRefused = errors.New("connection refused")

func (s *scripted) post(_ context.Context, path string) error {
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprintf("%v %s", time.Since(s.began), path))
	s.mu.Unlock()
	if path == "/quitquitquit" {
		s.end()
	}
	if s.fails {
		return errRefused
	}
	return nil
}

func (s *scripted) get(_ context.Context, path string) ([]byte, error) {
	open := 0
	if time.Since(s.began) < s.until {
		open = 1
	}
	switch {
	case s.fails:
		return nil, errRefused
	case s.empty:
		return nil, nil
	case strings.HasPrefix(path, "/stats/prometheus"):
		return fmt.Appendf(nil, "# TYPE envoy_http_downstream_cx_active gauge\n"+
			"envoy_http_downstream_cx_active{envoy_http_conn_manager_prefix=\"admin\"} 2\n"+
			"envoy_http_downstream_cx_active{envoy_http_conn_manager_prefix=\"ingress_http\"} %d\n", open), nil
	case strings.Contains(path, "format=json"):
		return fmt.Appendf(nil, `{"stats":[{"name":"listener.admin.downstream_cx_active","value":2},{"name":"listener.0.0.0.0_10080.downstream_cx_active","value":%d}]}`, open), nil
	}
	return fmt.Appendf(nil, "http.admin.downstream_cx_active: 2\nlistener.0.0.0.0_15006.downstream_cx_active: %d\n"+
		"listener.0.0.0.0_15006.worker_0.downstream_cx_active: %d\nlistener.0.0.0.0_15021.downstream_cx_active: 1\nlistener.admin.downstream_cx_active: 2\n", open, open), nil
}

func chosen(t *testing.T, name string) Peer {
	t.Helper()
	list, err := choose([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

const never = time.Hour

// Each peer's rules in virtual time: when its pod is gone, by the end of its only
// connection. Two loops of a second that meet may see each other a second later: both
// moments are given.
func TestModels(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		peer     string
		until    time.Duration // the connection's, and the app's end after its SIGTERM
		from, to time.Duration
		change   func(*scripted)
		killed   bool // the kubelet was needed
		calls    []string
	}{
		{peer: "istio-default", until: 10 * s, from: 5 * s, to: 5 * s, calls: []string{"0s /drain_listeners?inboundonly&graceful"}},
		{peer: "istio-exit-on-zero", from: 6 * s, to: 6 * s},
		{peer: "istio-exit-on-zero", until: 10*s + s/4, from: 11 * s, to: 11 * s},
		{peer: "istio-exit-on-zero", until: never, from: 30 * s, to: 30 * s, killed: true},
		{peer: "istio-exit-on-zero", until: never, change: func(e *scripted) { e.empty = true }, from: 6 * s, to: 6 * s},
		{peer: "istio-exit-on-zero", until: never, change: func(e *scripted) { e.fails = true }, from: 10 * s, to: 10 * s},
		{peer: "istio-native", until: 10 * s, from: 10 * s, to: 10 * s, calls: []string{"0s /drain_listeners?inboundonly&graceful&skip_exit"}},
		{peer: "istio-native-exit", until: 10 * s, from: 0, to: 0},
		{peer: "envoy-gateway", from: 11 * s, to: 12 * s, calls: []string{"0s /healthcheck/fail"}},
		{peer: "envoy-gateway", until: 14*s + s/4, from: 15 * s, to: 16 * s},
		{peer: "envoy-gateway", until: never, from: 61 * s, to: 62 * s},
		{peer: "envoy-gateway", change: func(e *scripted) { e.fails = true }, from: 61 * s, to: 62 * s},
		{peer: "contour", from: 0, to: s, calls: []string{"0s /healthcheck/fail"}},
		{peer: "contour", until: 10*s + s/4, from: 15 * s, to: 16 * s},
		{peer: "contour", until: never, from: 300 * s, to: 300 * s},
		{peer: "contour", change: func(e *scripted) { e.empty = true }, from: 300 * s, to: 300 * s},
		{peer: "contour", change: func(e *scripted) { e.fails = true }, from: 300 * s, to: 300 * s,
			calls: []string{"0s /healthcheck/fail", "200ms /healthcheck/fail", "1.2s /healthcheck/fail", "6.2s /healthcheck/fail"}},
		{peer: "consul-dataplane", from: 30 * s, to: 30 * s},
		{peer: "kuma-sidecar", until: 10 * s, from: 10 * s, to: 10 * s},
		{peer: "kuma-gateway", from: 30 * s, to: 30 * s, calls: []string{"0s /healthcheck/fail"}},
	} {
		t.Run(fmt.Sprintf("%s until %v", tt.peer, tt.until), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := chosen(t, tt.peer)
				e := &scripted{container: newContainer(0), until: tt.until, began: time.Now()}
				if tt.change != nil {
					tt.change(e)
				}
				takes := tt.until
				if p.app == strategy.Exits {
					takes = 0
				}
				var o pod
				o.compose(p, e, e, []node.Member{{Container: newContainer(min(takes, 20*time.Second))}})
				endings := node.Terminate(t.Context(), o.members, p.grace)
				gone := endings[0].Gone.Sub(e.began)
				o.settle()
				if gone < tt.from || gone > tt.to {
					t.Errorf("gone after %v, want %v to %v", gone, tt.from, tt.to)
				}
				if tt.killed && endings[0].Killed.IsZero() {
					t.Error("no SIGKILL was needed")
				}
				if tt.calls != nil && !slices.Equal(e.calls, tt.calls) {
					t.Errorf("it called %q, want %q", e.calls, tt.calls)
				}
				synctest.Wait()
			})
		})
	}
}

// With a longer grace period than the default it is seen how consul-dataplane ends
// its Envoy, and that an Envoy that dies is the end of its agent.
func TestConsulQuits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := chosen(t, "consul-dataplane")
		e := &scripted{container: newContainer(0), began: time.Now()}
		var o pod
		o.compose(p, e, e, nil)
		endings := node.Terminate(t.Context(), o.members, time.Minute)
		o.settle()
		want := []string{"0s /drain_listeners?inboundonly&graceful&skip_exit", "30s /quitquitquit"}
		if !slices.Equal(e.calls, want) || !endings[0].Killed.IsZero() {
			t.Errorf("%q, %+v", e.calls, endings[0])
		}
	})
	for _, name := range []string{"consul-dataplane", "istio-default", "istio-exit-on-zero", "kuma-gateway"} {
		synctest.Test(t, func(t *testing.T) {
			e := &scripted{container: newContainer(0), until: never, began: time.Now()}
			var o pod
			o.compose(chosen(t, name), e, e, nil)
			time.AfterFunc(time.Second, e.end)
			node.Terminate(t.Context(), o.members, time.Minute)
			o.settle()
			if gone := time.Since(e.began); gone != time.Second {
				t.Errorf("%s: gone after %v", name, gone)
			}
		})
	}
}
