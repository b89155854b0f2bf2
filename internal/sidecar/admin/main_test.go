package admin

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlane records its calls.
type fakePlane struct {
	mu          sync.Mutex
	calls       []string
	listeners   []pipe.Listener
	connections []pipe.Connection
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

func (p *fakePlane) Listeners() []pipe.Listener     { return slices.Clone(p.listeners) }
func (p *fakePlane) Connections() []pipe.Connection { return slices.Clone(p.connections) }
func (p *fakePlane) Drain()                         { p.note("drain") }
func (p *fakePlane) CloseIdle()                     { p.note("close-idle") }
func (p *fakePlane) StopAccepting()                 { p.note("stop") }
func (p *fakePlane) Resume()                        { p.note("resume") }

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
	must(t, err)
	t.Cleanup(s.Close)
	return s, plane
}

// ask makes one request on a connection of its own.
func ask(t *testing.T, s *Server, method, target string) (*http.Response, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequest(method, "http://"+s.Addr().String()+target, nil)
	must(t, err)
	resp, err := transport.RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(body)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
