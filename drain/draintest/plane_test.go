package draintest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

func Example() {
	plane := dt.New(dt.Script{Clients: []dt.Client{
		dt.Idle(-time.Minute), // a kept-alive connection
		dt.KeepAlive("/delay/3600", -10*time.Second, time.Hour), // in flight
	}})
	defer plane.Stop()
	ctx := context.Background()

	say := func() {
		a, err := plane.Activity(ctx)
		fmt.Printf("%d open, %d busy, %v\n", a.Connections, a.Busy, err)
	}
	say()
	_ = plane.CloseIdle(ctx, 0)
	say()
	open, _ := plane.LastCall(ctx, 0)
	fmt.Println(open[0].Request, "from", open[0].Peer)
	say()
	// Output:
	// 2 open, 1 busy, <nil>
	// 1 open, 1 busy, <nil>
	// GET /delay/3600 from 192.0.2.2:40000
	// 0 open, 0 busy, <nil>
}

func TestPlane(t *testing.T) {
	const s = time.Second
	var ctx = context.Background()
	type step struct {
		at   time.Duration
		do   func(p *dt.Plane) error
		want string // connections/busy/arrivals after it
	}
	look := func(*dt.Plane) error { return nil }
	begin := func(p *dt.Plane) error { return p.Drain(ctx) }
	stop := func(p *dt.Plane) error { return p.StopAccepting(ctx) }
	resume := func(p *dt.Plane) error { return p.Resume(ctx) }
	idle := func(d time.Duration) func(p *dt.Plane) error {
		return func(p *dt.Plane) error { return p.CloseIdle(ctx, d) }
	}
	lastCall := func(p *dt.Plane) error { _, err := p.LastCall(ctx, s); return err }

	for _, tt := range []struct {
		name    string
		clients []dt.Client
		steps   []step
		endings string
	}{
		{"a request comes, is answered, and its client leaves",
			[]dt.Client{dt.Get("/", 1*s, 2*s)},
			[]step{{0, look, "0/0/0"}, {1 * s, look, "1/1/2"}, {3 * s, look, "0/0/2"}},
			"3s / answered"},
		{"a client that keeps its connection is idle on it",
			[]dt.Client{dt.KeepAlive("/", -1*s, 2*s)},
			[]step{{0, look, "1/1/2"}, {1 * s, look, "1/0/2"}, {time.Hour, look, "1/0/2"}},
			"1s / answered"},
		{"after Drain an answer ends its connection",
			[]dt.Client{dt.KeepAlive("/", 0, 3*s)},
			[]step{{1 * s, begin, "1/1/2"}, {3 * s, look, "0/0/2"}},
			"3s / answered"},
		{"a response whose head was sent before Drain keeps its connection",
			[]dt.Client{dt.Stream("/", 0, 3*s), dt.Stream("/later", 2*s, 1*s)},
			[]step{{1 * s, begin, "1/1/2"}, {3 * s, look, "1/0/4"}},
			"3s / answered, 3s /later answered"},
		{"an opaque connection is busy while it is open",
			[]dt.Client{dt.TCP(-1*s, 3*s)},
			[]step{{0, idle(0), "1/1/1"}, {2 * s, look, "0/0/1"}},
			"2s  answered"},
		{"idle connections go when they have been idle for long enough",
			[]dt.Client{dt.Idle(-5 * s), dt.Idle(-1 * s), dt.Stream("/", -1*s, 3*s)},
			[]step{{0, idle(2 * s), "2/1/4"}, {1 * s, look, "1/1/4"}, {2 * s, look, "1/0/4"}, {4 * s, look, "0/0/4"}},
			"2s / answered"},
		{"an idle connection that is used again stays",
			[]dt.Client{{Requests: []dt.Request{{Line: "GET /", At: 1 * s, Takes: 1 * s}}, Leaves: dt.Forever}},
			[]step{{0, idle(1500 * time.Millisecond), "1/0/1"}, {1600 * time.Millisecond, look, "1/1/2"}, {3 * s, look, "1/0/2"}, {4 * s, look, "0/0/2"}},
			"2s / answered"},
		{"a client that connects after StopAccepting is refused, open connections continue",
			[]dt.Client{dt.Get("/", -1*s, 3*s), dt.Get("/late", 1*s, 1*s), dt.Idle(1 * s), dt.TCP(1*s, 5*s)},
			[]step{{0, stop, "1/1/2"}, {1 * s, look, "1/1/2"}, {2 * s, look, "0/0/2"}},
			"1s /late refused, 1s  refused, 1s  refused, 2s / answered"},
		{"a client whose connection was closed connects again",
			[]dt.Client{{At: -9 * s, Requests: []dt.Request{{Line: "GET /", At: 1 * s, Takes: 1 * s}}}},
			[]step{{0, idle(0), "0/0/1"}, {1 * s, look, "1/1/3"}, {2 * s, look, "0/0/3"}},
			"2s / answered"},
		{"the last call ends the busy and the idle, and refuses",
			[]dt.Client{dt.Get("/", -1*s, 9*s), dt.Idle(-1 * s), dt.Get("/late", 2*s, 1*s)},
			[]step{{1 * s, lastCall, "0/0/3"}},
			"1s / called, 2s /late refused"},
		{"Resume takes all of it back",
			[]dt.Client{dt.KeepAlive("/", 2*s, 1*s)},
			[]step{{0, begin, "0/0/0"}, {0, stop, "0/0/0"}, {0, idle(0), "0/0/0"}, {1 * s, resume, "0/0/0"}, {5 * s, look, "1/0/2"}},
			"3s / answered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := dt.New(dt.Script{Clients: tt.clients})
				defer p.Stop()
				start := time.Now()
				for _, st := range tt.steps {
					time.Sleep(st.at - time.Since(start))
					if err := st.do(p); err != nil {
						t.Fatalf("at %v: %v", st.at, err)
					}
					a, err := p.Activity(ctx)
					if got := fmt.Sprintf("%d/%d/%d", a.Connections, a.Busy, a.Arrivals); got != st.want || err != nil || !a.Known {
						t.Errorf("at %v: connections/busy/arrivals are %s, %v; want %s", st.at, got, err, st.want)
					}
				}
				time.Sleep(10 * s)
				if got := join(p.Endings()); got != tt.endings {
					t.Errorf("endings\n got %s\nwant %s", got, tt.endings)
				}
			})
		})
	}
}

// What the core does not need of a plane, but other data planes do: they are held to the same contract.
func TestContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dt.New(dt.Script{Clients: dt.Every(time.Second, "/", time.Second, 9*time.Second, 0)})
		time.Sleep(2500 * time.Millisecond)
		if n := len(p.Changes()); n != 0 {
			t.Errorf("%d changes before Drain, want none", n)
		}
		_ = p.Drain(t.Context())
		time.Sleep(3 * time.Second)
		if n := len(p.Changes()); n != 1 {
			t.Errorf("%d changes are pending after three, want one", n)
		}
		p.Kill()
		if err := p.Drain(t.Context()); !errors.Is(err, dt.ErrEnded) {
			t.Errorf("Drain after the end: %v, want %v", err, dt.ErrEnded)
		}
	})
}

func TestOverlapsAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dt.New(dt.Script{Faults: []dt.Fault{{Method: dt.Drain, Delay: time.Second}}})
		defer p.Stop()
		done := make(chan struct{})
		go func() { defer close(done); _ = p.Drain(t.Context()) }()
		synctest.Wait()
		_, _ = p.Open(t.Context(), 1)
		<-done
		if got := p.Overlaps(); len(got) != 1 || got[0] != "Open during Drain at 0s" {
			t.Errorf("overlaps: %q", got)
		}
	})
}

func join(endings []dt.Ending) (s string) {
	for i, e := range endings {
		if i > 0 {
			s += ", "
		}
		path := e.Request
		if len(path) > 4 {
			path = path[4:]
		}
		s += fmt.Sprintf("%v %s %s", e.At, path, e.How)
	}
	return s
}

var _ drain.DataPlane = (*dt.Plane)(nil)
