package sockets

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// fakeLinkerd has the counters of a proxy.
type fakeLinkerd struct {
	mu            sync.Mutex
	begun, ended  int // of fakePort
	ended101      int
	err           error
	body          string // in place of the metrics
	takes         time.Duration
	shutdowns     int
	betweenCounts func() // runs while the proxy writes a page, after its requests
}

func (l *fakeLinkerd) count(begun, ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun += begun
	l.ended += ended
}

// words name the events at the proxy, for a connection that plays.
func (l *fakeLinkerd) words() map[string]func() {
	return map[string]func(){
		"begins":   func() { l.count(1, 0) },
		"ends":     func() { l.count(0, 1) },
		"restarts": func() { l.mu.Lock(); defer l.mu.Unlock(); l.begun, l.ended = 0, 0 },
	}
}

func (l *fakeLinkerd) serve(_ uint16, method, path string) ([]byte, error) {
	time.Sleep(l.takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if method == http.MethodPost && path == "/shutdown" {
		l.shutdowns++
		return []byte("shutdown\n"), nil
	}
	if l.body != "" {
		return []byte(l.body), nil
	}
	const labels = `parent_group="",parent_kind="default",parent_name="all-unauthenticated",parent_port="8080",route_name="default"`
	begun := l.begun
	if l.betweenCounts != nil {
		l.mu.Unlock()
		l.betweenCounts()
		l.mu.Lock()
	}
	// Two routes, and more than one status of each.
	var page strings.Builder
	fmt.Fprintf(&page, "# TYPE inbound_http_requests counter\ninbound_http_requests_total{%s} %d\ninbound_grpc_requests_total{%s} %d\n", labels, begun, labels, 1000)
	fmt.Fprintf(&page, "inbound_http_requests_total{parent_port=\"4191\"} 17\nrequest_total{direction=\"inbound\",target_port=\"8080\"} 3\n")
	fmt.Fprintf(&page, "inbound_http_statuses_total{%s,status=\"200\"} %d\ninbound_grpc_statuses_total{%s,status=\"0\"} 600\ninbound_grpc_statuses_total{%s,status=\"\"} 400\n", labels, l.ended-l.ended101, labels, labels)
	if l.ended101 > 0 {
		fmt.Fprintf(&page, "inbound_http_statuses_total{%s,status=\"101\"} %d\n", labels, l.ended101)
	}
	return []byte(page.String()), nil
}

// Each row is a pod's last seconds next to linkerd's proxy, whose pooled connection to the app stays open.
func TestWaitLinkerd(t *testing.T) {
	muxed := Options{OpaquePorts: []uint16{fakePort}, MuxedPorts: []uint16{fakePort}}
	const soon = 500 * time.Millisecond  // two pages
	const pooled = "asks, answers, asks" // HTTP/2 acknowledges settings
	// one is a connection with its steps.
	one := func(steps ...any) func(*fakeKernel, *fakeLinkerd) {
		return func(k *fakeKernel, l *fakeLinkerd) { k.connects().plays(l.words(), steps...) }
	}
	quick := slices.Repeat([]any{2 * second, "begins, asks, answers, ends"}, 4)
	for _, tt := range []struct {
		name    string
		o       Options
		play    func(k *fakeKernel, l *fakeLinkerd)
		want    time.Duration
		verdict drain.Verdict
	}{
		{"HTTP/2, idle", muxed, one(pooled), 5 * second, drain.Clean},
		{"HTTP/2, a slow request and quick ones", muxed,
			one(append(append([]any{pooled, "begins"}, quick...), 4*second, "answers, ends")...), 12 * second, drain.Clean},
		{"HTTP/2, a request that is never answered", muxed, one(pooled, "begins"), 25 * second, drain.Cut},
		{"HTTP/2, bytes that the app has not read", muxed, one(pooled, "is unread"), 25 * second, drain.Cut},
		{"HTTP/2, the proxy does not answer", muxed, func(k *fakeKernel, l *fakeLinkerd) {
			l.err = errors.New("connection refused")
			one(pooled)(k, l)
		}, 25 * second, drain.Cut},
		{"HTTP/2, another program's page", muxed, func(k *fakeKernel, l *fakeLinkerd) {
			l.body = "inbound_http_requests_total{parent_port=\"8080\"} many\n<html>"
			one(pooled)(k, l)
		}, 25 * second, drain.Cut},
		{"HTTP/2, the proxy restarts and has no counters at first", muxed, func(k *fakeKernel, l *fakeLinkerd) {
			one(pooled, "begins", 8*second, "closes, restarts")(k, l)
			one(pooled, "begins", 4*second, "answers, ends")(k, l)
		}, 12 * second, drain.Clean},
		{"HTTP/2, requests begin and end while the proxy writes each page", muxed, func(k *fakeKernel, l *fakeLinkerd) {
			one(pooled, "begins")(k, l) // never answered
			l.mu.Lock()
			defer l.mu.Unlock()
			l.betweenCounts = func() { l.count(1, 1) } // so that each page has as many ends as requests
		}, 25 * second, drain.Cut},
		{"HTTP/1.1: no idle grace after the response", Options{}, one("asks, begins", 12*second, "answers, ends"), 12 * second, drain.Clean},
		{"HTTP/1.1: no pause of a stream that has ended", Options{}, func(k *fakeKernel, l *fakeLinkerd) {
			c := k.connects()
			l.count(1, 0)
			streams(c, 20)
			l.count(0, 1)
		}, 10 * second, drain.Clean},
		{"HTTP/1.1: one that has not, as without the proxy", Options{}, func(k *fakeKernel, l *fakeLinkerd) {
			c := k.connects()
			l.count(1, 0)
			streams(c, 10)
		}, 20 * second, drain.Assumed},
		{"HTTP/1.1: a request past the proxy", Options{}, one("asks"), 25 * second, drain.Cut},
		{"a WebSocket, by its bytes as without the proxy", Options{}, func(k *fakeKernel, l *fakeLinkerd) {
			l.mu.Lock()
			l.begun, l.ended, l.ended101 = l.begun+1, l.ended+1, 1
			l.mu.Unlock()
			c := k.connects()
			c.asks()
			for range 24 {
				c.answers()
				time.Sleep(second / 2)
			}
		}, 25 * second, drain.Cut},
		{"a WebSocket's port", Options{OpaquePorts: []uint16{fakePort}}, one(), 25 * second, drain.Cut},
		{"another protocol's", Options{Opaque: true, MuxedPorts: []uint16{fakePort}}, one(), 25 * second, drain.Cut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &fakeKernel{acks: acks{inStride: map[ends]bool{}}, gone: make(chan struct{}, 1)}
				l := &fakeLinkerd{begun: 7, ended: 7, takes: 3 * time.Millisecond}
				var played sync.WaitGroup
				defer played.Wait()
				played.Go(func() { tt.play(k, l) })
				synctest.Wait()
				config := hook.Until(drain.DefaultConfig(), timers.DefaultLeave)
				o := tt.o
				o.Ports, o.IdleGrace, o.Log, o.StreamPause, o.Linkerd = []uint16{fakePort}, config.IdleGrace, quiet(), DefaultStreamPause, 4191
				machine := k.kernel()
				machine.linkerd = l.serve
				r, err := hook.Wait(t.Context(), newPlane(o, machine), config, nil, quiet())
				must.Do(t, err)
				if took := time.Duration(r.Duration); took < tt.want || took > tt.want+soon || r.Verdict != tt.verdict {
					t.Errorf("%s after %v; want %s after %v and at most %v more\n%+v", r.Verdict, took, tt.verdict, tt.want, soon, r)
				}
				if l.shutdowns > 0 {
					t.Error("the proxy was shut down")
				}
				time.Sleep(second) // the watch of the proxy ends
			})
		})
	}
}

// TestLinkerdShutdown: the proxy is shut down once, when the quiet time has passed. It needs the app until its clients have
// their answers, so an app that finishes is waited for as well.
func TestLinkerdShutdown(t *testing.T) {
	disabled := errors.New("unexpected status 404: shutdown endpoint is not enabled")
	for _, tt := range []struct {
		app     drain.AppEnd
		refused error
	}{{drain.AppAuto, nil}, {drain.AppAuto, disabled}, {drain.AppFinishes, nil}, {drain.AppFinishes, disabled}} {
		synctest.Test(t, func(t *testing.T) {
			k, l := &fakeKernel{gone: make(chan struct{}, 1)}, &fakeLinkerd{}
			c := k.connects()
			c.asks()
			l.count(1, 0)
			var played sync.WaitGroup
			defer played.Wait()
			played.Go(func() {
				time.Sleep(5*second - time.Millisecond)
				if l.mu.Lock(); l.shutdowns != 0 {
					t.Error("the proxy was shut down during the minimum drain")
				}
				l.err = tt.refused
				l.mu.Unlock()
				time.Sleep(2 * time.Millisecond)
				if l.mu.Lock(); (l.shutdowns == 1) != (tt.refused == nil) {
					t.Errorf("after the minimum drain: %d shutdowns", l.shutdowns)
				}
				l.err = nil
				l.mu.Unlock()
				time.Sleep(4 * second)
				c.answers()
				c.closes()
				l.count(0, 1)
			})
			config := hook.Until(drain.DefaultConfig(), timers.DefaultLeave)
			config.App = tt.app
			o := Options{Ports: []uint16{fakePort}, IdleGrace: config.IdleGrace, Log: quiet(), Linkerd: 4191, LinkerdShutdown: true}
			machine := k.kernel()
			machine.linkerd = l.serve
			r, err := hook.Wait(t.Context(), newPlane(o, machine), config, nil, quiet())
			if took := time.Duration(r.Duration); err != nil || r.Verdict != drain.Clean || took < 9*second || took > 10*second {
				t.Errorf("%v, %+v", err, r)
			}
			if isReported := strings.Contains(strings.Join(r.Faults, " "), "not enabled"); isReported != (tt.refused != nil) || l.shutdowns > 1 {
				t.Errorf("refused: %v; %d shutdowns, faults %q", tt.refused, l.shutdowns, r.Faults)
			}
			time.Sleep(second) // the watch of the proxy ends
		})
	}
}

// TestAskAdmin: a real server, which may answer late, with errors, or without end.
func TestAskAdmin(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/late":
			<-r.Context().Done()
		case "/long":
			for block := make([]byte, 1<<20); r.Context().Err() == nil; {
				_, _ = w.Write(block)
			}
		case "/shutdown":
			http.Error(w, "shutdown endpoint is not enabled", http.StatusNotFound)
		case "/elsewhere":
			http.Redirect(w, r, "/metrics", http.StatusFound)
		default:
			fmt.Fprintf(w, "%s %s", r.Method, r.Header.Get("Accept-Encoding"))
		}
	}))
	port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
	for path, want := range map[string]string{"/late": "deadline exceeded", "/long": "", "/shutdown": "404 Not Found: shutdown endpoint is not enabled", "/elsewhere": "302"} {
		if body, err := askAdmin(port, http.MethodPost, path); err == nil || body != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d bytes, %v", path, len(body), err)
		}
	}
	if body, err := askAdmin(port, http.MethodGet, "/metrics"); err != nil || string(body) != "GET " {
		t.Errorf("%q, %v", body, err)
	}
}
