package admin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlane records its calls.
type fakePlane struct {
	mu        sync.Mutex
	calls     []string
	listeners []pipe.Listener
}

func (p *fakePlane) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, what)
}

// was returns the calls since the last time.
func (p *fakePlane) was() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := strings.Join(p.calls, " ")
	p.calls = nil
	return out
}

func (p *fakePlane) Listeners() []pipe.Listener                     { return slices.Clone(p.listeners) }
func (p *fakePlane) Drain(context.Context) error                    { p.note("drain"); return nil }
func (p *fakePlane) CloseIdle(context.Context, time.Duration) error { p.note("close-idle"); return nil }
func (p *fakePlane) StopAccepting(context.Context) error            { p.note("stop"); return nil }

// listenerOn is a listener of HTTP without traffic.
func listenerOn(address, name, app string) pipe.Listener {
	return pipe.Listener{
		Inbound: pipe.Inbound{Name: name, App: app, Protocol: pipe.HTTP},
		Addr:    net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)),
	}
}

// twoListeners returns one listener as Istio names it, with traffic, and one for TCP.
func twoListeners() []pipe.Listener {
	web, mysql := listenerOn("[::]:8000", "", "127.0.0.1:8080"), listenerOn("[::1]:3307", "mysql", "127.0.0.1:3306")
	web.Open, web.Busy, web.AppOpen = 3, 2, 3
	web.Stats = counters.Stats{Connections: 10, Requests: 40, Responses: [6]uint64{0, 0, 30, 0, 6, 2}, Connected: 8, ConnectFailed: 1}
	mysql.Protocol = pipe.TCP
	return []pipe.Listener{web, mysql}
}

// startServer starts a server on a free port, for a plane with two listeners.
func startServer(t *testing.T, options ...func(*Options)) (*Server, *fakePlane) {
	t.Helper()
	plane := &fakePlane{listeners: twoListeners()}
	o := Options{Plane: plane, DrainTime: 45 * time.Second, IdleAfter: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		option(&o)
	}
	s, err := Start("127.0.0.1:0", o)
	must.Do(t, err)
	t.Cleanup(s.Close)
	return s, plane
}

// ask makes one request on a connection of its own.
func ask(t *testing.T, s *Server, method, target string) (*http.Response, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequest(method, "http://"+s.Addr().String()+target, nil)
	must.Do(t, err)
	resp, err := transport.RoundTrip(req)
	must.Do(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp, string(body)
}

// The requests to the API at each second, and the calls of the data plane
// then: closing at once, the idle after 5 s, the listeners after 45 s.
func TestDraining(t *testing.T) {
	type step struct {
		at   int // seconds since the start
		do   func(*draining)
		want string // asked of the plane until the next step
	}
	graceful := func(d *draining) { d.drain(true, false) }
	forever := func(d *draining) { d.drain(true, true) }
	atOnce := func(d *draining) { d.drain(false, false) }
	wait := func(*draining) {}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"graceful: listeners stop after the drain time", []step{
			{0, graceful, "drain"}, {4, wait, "close-idle"}, {44, wait, "stop"}, {600, wait, ""},
		}},
		{"not graceful: listeners stop at once", []step{
			{0, atOnce, "drain stop"}, {1, wait, "close-idle"}, {600, wait, ""},
		}},
		{"skip_exit: listeners never stop", []step{
			{0, forever, "drain"}, {1, wait, "close-idle"}, {600, wait, ""},
		}},
		{"skip_exit without graceful is the same", []step{
			{0, func(d *draining) { d.drain(false, true) }, "drain"}, {1, wait, "close-idle"}, {600, wait, ""},
		}},
		{"a second graceful drain changes nothing", []step{
			{0, graceful, "drain"}, {1, wait, "close-idle"}, {30, graceful, "drain"}, {44, wait, "stop"}, {600, wait, ""},
		}},
		{"after skip_exit a graceful drain stops nothing", []step{
			{0, forever, "drain"}, {1, wait, "close-idle"}, {10, graceful, "drain"}, {600, wait, ""},
		}},
		{"one that is not graceful stops at once even then, and only once", []step{
			{0, graceful, "drain"}, {1, wait, "close-idle"}, {10, atOnce, "drain stop"}, {600, wait, ""},
		}},
		{"a failed health check stops nothing", []step{
			{0, (*draining).fail, "drain"}, {1, wait, "close-idle"}, {600, wait, ""},
		}},
		{"a reset forgets the drain and its timers", []step{
			{0, graceful, "drain"}, {1, (*draining).reset, ""}, {600, graceful, "drain"}, {601, wait, "close-idle"}, {644, wait, "stop"}, {700, wait, ""},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				plane := &fakePlane{}
				d := &draining{Options: Options{Plane: plane, DrainTime: 45 * time.Second, IdleAfter: 5 * time.Second}}
				for i, s := range tt.steps {
					time.Sleep(time.Until(began.Add(time.Duration(s.at) * time.Second)))
					s.do(d)
					until := 2000
					if i+1 < len(tt.steps) {
						until = tt.steps[i+1].at
					}
					time.Sleep(time.Until(began.Add(time.Duration(until)*time.Second - time.Millisecond)))
					synctest.Wait()
					if was := plane.was(); was != s.want {
						t.Errorf("from second %d to %d the plane was called with %q, want %q", s.at, until, was, s.want)
					}
				}
				d.reset()
				graceful(d)
				closed := time.Now()
				d.reset()
				if d.due.Wait(); time.Since(closed) > 0 {
					t.Errorf("the end has waited %v for a timer", time.Since(closed))
				}
			})
		})
	}
}

func TestListenersOnEveryAddressAreNamedAsIstioDoes(t *testing.T) {
	for address, want := range map[string]string{
		"[::]:80":             "0.0.0.0_80",
		"0.0.0.0:80":          "0.0.0.0_80",
		"127.0.0.1:80":        "127.0.0.1_80",
		"[::ffff:10.0.0.1]:1": "10.0.0.1_1",
		"[::1]:80":            "[__1]_80",
	} {
		l := listenerOn(address, "", "")
		if got := statAddress(&l); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestNamesAreSharedAsInEnvoy(t *testing.T) {
	s, plane := startServer(t)
	first, second := listenerOn("10.0.0.1:80", "web", "127.0.0.1:8080"), listenerOn("10.0.0.1:81", "web", "127.0.0.1:8080")
	first.Open, first.Stats = 1, counters.Stats{Connections: 2, Requests: 3}
	second.Open, second.Stats = 10, counters.Stats{Connections: 20, Requests: 30}
	plane.listeners = []pipe.Listener{first, second}
	if _, body := ask(t, s, "GET", "/stats?filter=^http.web.*(cx_active|rq_total)|^listener.10.*active|total_connections"); body != `http.web.downstream_cx_active: 11
http.web.downstream_rq_total: 33
listener.10.0.0.1_80.downstream_cx_active: 1
listener.10.0.0.1_81.downstream_cx_active: 10
server.total_connections: 11
` {
		t.Error(body)
	}
}

func TestStatsAreInOrderAndValid(t *testing.T) {
	s, _ := startServer(t)
	_, body := ask(t, s, "GET", "/stats")
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	if !slices.IsSorted(lines) || len(lines) != len(slices.Compact(slices.Clone(lines))) {
		t.Error(body)
	}
	for _, line := range lines {
		if !regexp.MustCompile(`^[^:]+: \d+$`).MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
	_, body = ask(t, s, "GET", "/stats?format=json")
	var got struct{ Stats []struct{ Name string } }
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Stats) != len(lines) {
		t.Errorf("%v: %d of %d", err, len(got.Stats), len(lines))
	}
}
