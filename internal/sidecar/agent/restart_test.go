package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// TestAppHookAlone has the hook of an app that is alone, and one with the other signs of a pod's
// end, in virtual time.
func TestAppHookAlone(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	hanging := []dt.Client{dt.Get("/hang", -s, time.Hour)}
	opaque := []dt.Client{{Protocol: "tcp", At: -s, Leaves: dt.Forever}}
	finishes := []string{"LASTCALL_APP=finishes"}
	for _, tt := range []struct {
		name    string
		sidecar Sidecar
		env     []string
		clients []dt.Client
		follows drain.Signal
		after   time.Duration // of follows; 0: nothing does
		before  bool          // follows comes first
		returns time.Duration
		calls   string // of the data plane by then
	}{
		{name: "nothing is in flight", sidecar: NativeSidecar, returns: 750 * ms},
		{name: "classic", sidecar: ClassicSidecar, returns: 750 * ms},
		{name: "requests in flight end in time", sidecar: NativeSidecar, clients: []dt.Client{dt.Get("/", 0, 900*ms)},
			returns: 910 * ms},
		{name: "a request hangs", sidecar: NativeSidecar, clients: hanging, returns: s},
		{name: "the sidecar's own hook follows", sidecar: NativeSidecar, clients: []dt.Client{dt.Get("/", 0, 8*s)},
			follows: drain.Hook, after: 300 * ms, returns: 8 * s, calls: "Drain"},
		{name: "SIGTERM follows", sidecar: ClassicSidecar, clients: []dt.Client{dt.Get("/", 0, 8*s)},
			follows: drain.Terminate, after: 300 * ms, returns: 8 * s, calls: "Drain"},
		{name: "SIGTERM came first", sidecar: ClassicSidecar, follows: drain.Terminate, after: 300 * ms, before: true,
			returns: 5 * s, calls: "Drain"},
		{name: "the pod's end comes late, with a request in flight", sidecar: NativeSidecar,
			clients: []dt.Client{dt.Get("/", 0, 8*s)}, follows: drain.Hook, after: 900 * ms, returns: 8 * s, calls: "Drain"},
		{name: "unknown: a drain", clients: []dt.Client{dt.Get("/", 0, 8*s)}, returns: 8 * s, calls: "Drain"},
		{name: "an app that finishes, with an opaque connection", sidecar: ClassicSidecar, env: finishes, clients: opaque,
			follows: drain.Terminate, after: 300 * ms, returns: 5300 * ms, calls: "Drain"},
		{name: "in a native pod", sidecar: NativeSidecar, env: finishes, clients: opaque, follows: drain.Hook,
			after: 300 * ms, returns: 5300 * ms, calls: "Drain"},
		{name: "unknown: a trial before the last call", sidecar: NativeSidecar, clients: opaque, follows: drain.Hook,
			after: 300 * ms, returns: 25300 * ms, calls: "Drain"},
		{name: "fixed wait", sidecar: NativeSidecar, env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=false"},
			clients: hanging, follows: drain.Hook, after: 10 * ms, returns: 5010 * ms, calls: "Drain"},
		{name: "fixed wait, a restart", sidecar: NativeSidecar, env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=false"},
			returns: 750 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plane := dt.New(dt.Script{Clients: tt.clients})
				defer plane.Stop()
				a := serving(t, plane, tt.sidecar, tt.env...)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				defer all.Wait()
				defer cancel()
				all.Go(func() { a.serve(ctx) })
				all.Go(func() { a.handleRestarts(ctx) })
				began := time.Now()
				if tt.after > 0 {
					if tt.before {
						a.requests.Send(tt.follows)
						time.Sleep(tt.after)
					} else {
						time.AfterFunc(tt.after, func() { a.requests.Send(tt.follows) })
					}
				}
				err := a.awaitAppHook(ctx, nil)
				took := time.Since(began)
				synctest.Wait()
				var calls []string
				for _, c := range plane.Calls() {
					if c.Method == dt.Drain || c.Method == dt.StopAccepting || c.Method == dt.CloseIdle && tt.calls == "" {
						calls = append(calls, string(c.Method))
					}
				}
				if got := strings.Join(calls, " "); err != nil || !strings.HasPrefix(got, tt.calls) || tt.calls == "" && got != "" {
					t.Errorf("%v, calls %q, want %q", err, got, tt.calls)
				}
				if early, late := tt.returns, tt.returns+restartPoll; took < early || took > late {
					t.Errorf("the hook returns after %v, want %v", took, tt.returns)
				}
			})
		})
	}
}

// serving is an agent in the serving phase, without listeners and goroutines.
func serving(t *testing.T, plane drain.DataPlane, sidecar Sidecar, env ...string) *agent {
	t.Helper()
	settings, err := meshconfig.Resolve(meshconfig.Input{Env: env})
	must.Do(t, err)
	a := newAgent(Options{Settings: settings, Pod: Pod{Sidecar: sidecar}, Log: slog.New(slog.DiscardHandler)})
	a.plane = plane
	a.status = &status{a: a, metrics: newMetrics(a.phases)}
	a.phases.ready()
	return a
}

// TestHooksOfOneRestart: hooks of a container that began before the first of them returned are one restart.
func TestHooksOfOneRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := dt.New(dt.Script{})
		defer plane.Stop()
		a := serving(t, plane, NativeSidecar)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { a.handleRestarts(ctx) })
		hook := func(ports []uint16) { all.Go(func() { _ = a.awaitAppHook(ctx, ports) }) }
		want := func(restarts int) {
			t.Helper()
			time.Sleep(2 * time.Second)
			var m dto.Metric
			must.Do(t, a.status.metrics.restarts.Write(&m))
			if got := int(m.Counter.GetValue()); got != restarts {
				t.Errorf("%d restarts, want %d", got, restarts)
			}
		}
		hook([]uint16{80})
		time.Sleep(restartKnown - time.Millisecond)
		hook([]uint16{80})
		want(1)
		hook([]uint16{80})
		want(2)
		for port := range uint16(maxContainers) { // beyond the limit ports do not distinguish containers
			hook([]uint16{port})
		}
		hook([]uint16{8080})
		want(2 + maxContainers)
	})
}

// TestRestart has an app container restarted as the kubelet does it, while clients keep coming:
// each is answered, and the agent notices when the app is back.
func TestRestart(t *testing.T) {
	var app *http.Server
	serve := func(address string) string {
		ln := nettest.Listen(t, address)
		app = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "done") })}
		go func() { _ = app.Serve(ln) }()
		return ln.Addr().String()
	}
	address := serve(freeAddress(t)) // the kernel gives a port of :0 to the next listener in between
	r := start(t, nil, func(o *Options) {
		o.Status.HookToken, o.Status.SidecarToken, o.Pod.Sidecar = "app0", "sidecar0", NativeSidecar
		o.Pipe.Inbound[0].App, o.Pipe.Inbound[0].Protocol = address, pipe.HTTP
	})
	defer func() { _ = app.Close() }()

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if got := <-r.get("/"); got != "200 done<nil>" {
					t.Errorf("a client got %s", got)
					return
				}
			}
		})
	}
	hook := func(token string) (int, string) { return fetch("GET", r.status+"/wait/"+token) }
	_, port, _ := net.SplitHostPort(address) // ignores this machine's other listeners
	if code, body := hook("app0?ports=" + port); code != http.StatusOK {
		t.Fatal(code, body)
	}
	_ = app.Shutdown(t.Context()) // the container's SIGTERM
	serve(address)
	if got := <-r.get("/"); got != "200 done<nil>" {
		t.Errorf("after the restart: %s", got)
	}
	stop()
	clients.Wait()
	if strings.Contains(r.log.String(), "drain phase") {
		t.Errorf("a drain has begun:\n%s", r.log)
	}

	// The sidecar's own hook is the end of the pod.
	if code, body := hook("sidecar0"); code != http.StatusOK {
		t.Error(code, body)
	}
	r.terminates()
}

func TestHookPorts(t *testing.T) {
	for query, want := range map[string]string{"": "[] true", "?ports=": "[] false", "?ports=80": "[80] false",
		"?ports=80,x,443": "[80 443] false"} {
		r, _ := http.NewRequest(http.MethodGet, "http://pod/wait/token"+query, nil)
		ports := hookPorts(r)
		if got := fmt.Sprint(ports, ports == nil); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

func TestCompareListeners(t *testing.T) {
	before := listeners{80: {1, 2}, 443: {3}}
	for _, tt := range []struct {
		now         listeners
		lost, found int
	}{
		{before, 0, 0},
		{listeners{80: {2}, 443: {3}}, 0, 0}, // one of two sockets of a port
		{listeners{443: {3}}, 1, 0},
		{nil, 2, 0},
		{listeners{80: {4}}, 2, 1},
		{listeners{80: {4}, 443: {3}}, 1, 1},
		{listeners{80: {4}, 443: {5}}, 2, 2},
	} {
		if lost, found := before.compare(tt.now); lost != tt.lost || found != tt.found {
			t.Errorf("%v: %d %d, want %d %d", tt.now, lost, found, tt.lost, tt.found)
		}
	}
}
