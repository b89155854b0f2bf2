package sockets

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// probe sends a request each second on a connection of its own, until ctx ends.
func probe(ctx context.Context, k *fakeKernel, from netip.Addr, takes time.Duration) {
	for ctx.Err() == nil {
		c := k.connects()
		c.do(func(time.Time) { c.Remote = netip.AddrPortFrom(from, c.Remote.Port()) })
		c.asks()
		time.Sleep(takes)
		c.answers()
		c.closes()
		time.Sleep(second - takes)
	}
}

// Each row is a pod's last seconds: when the hook returns, and with which verdict.
// Defaults: 5 s minimum drain, 2 s quiet time and idle grace, 30 s grace period.
func TestWait(t *testing.T) {
	const exact = 40 * time.Millisecond // the kernel's jiffies, and collecting reports
	finishes := func(c drain.Config) drain.Config { c.App = drain.AppFinishes; return c }
	// one is a client's connection.
	one := func(steps ...any) func(context.Context, *fakeKernel) {
		return func(_ context.Context, k *fakeKernel) { k.connects().plays(nil, steps...) }
	}
	slow := one("asks", 12*second, "answers, closes")
	for _, tt := range []struct {
		name    string
		o       Options
		blind   bool // the kernel does not report ends
		config  func(drain.Config) drain.Config
		before  func(k *fakeKernel) // the hook begins
		play    func(ctx context.Context, k *fakeKernel)
		want    time.Duration
		late    time.Duration // how much more it may be
		verdict drain.Verdict
		open    string // in the report
	}{
		{name: "no clients", want: 5 * second, verdict: drain.Clean},
		{name: "an idle pool", play: func(_ context.Context, k *fakeKernel) {
			for range 10 {
				k.connects().plays(nil, "asks", fakeJiffy, "answers")
			}
		}, want: 5 * second, verdict: drain.Assumed},
		{name: "probes by way of Istio's ambient mesh do not extend the quiet time", play: func(ctx context.Context, k *fakeKernel) {
			probe(ctx, k, ambientProbes[0], fakeJiffy)
		}, want: 5 * second, late: exact, verdict: drain.Clean},
		{name: "which other clients do, to a third of the grace period", play: func(ctx context.Context, k *fakeKernel) {
			probe(ctx, k, netip.MustParseAddr("10.0.0.2"), fakeJiffy)
		}, want: 10 * second, late: second, verdict: drain.Clean},
		{name: "a slow request from the node of an ambient pod is busy", play: func(_ context.Context, k *fakeKernel) {
			c := k.connects()
			c.do(func(time.Time) { c.Remote = netip.AddrPortFrom(ambientProbes[1], 40000) })
			c.plays(nil, "asks", 12*second, "answers, closes")
		}, want: 12 * second, late: exact, verdict: drain.Clean},
		{name: "a slow request, then the connection is closed", play: slow, want: 12 * second, late: exact, verdict: drain.Clean},
		{name: "the same without reports of the kernel", blind: true, play: slow, want: 12 * second, late: sockdiag.MaxBlind, verdict: drain.Clean},
		{name: "a slow request on a connection that is kept: the idle grace more", play: one("asks", 12*second, "answers"), want: 14 * second, late: exact, verdict: drain.Assumed},
		{name: "a late client moves the end by the quiet time", play: func(_ context.Context, k *fakeKernel) {
			time.Sleep(4500 * time.Millisecond)
			k.connects().plays(nil, "asks, answers, closes")
		}, want: 6500 * time.Millisecond, late: lookMax, verdict: drain.Clean},
		{name: "a client that asks each second and never learns has a third of the grace period", play: func(ctx context.Context, k *fakeKernel) {
			for c := k.connects(); ctx.Err() == nil; {
				c.plays(nil, "asks", fakeJiffy, "answers", second)
			}
		}, want: 10 * second, late: 2 * second, verdict: drain.Assumed},
		{name: "a request that is never answered: the app's own time is left to it", play: one("asks"), want: 25 * second, late: exact, verdict: drain.Cut, open: string(ClientLast)},
		{name: "an opaque open connection", o: Options{Opaque: true}, play: one(), want: 25 * second, late: exact, verdict: drain.Cut, open: string(Opaque)},
		{name: "HTTP/2 on a port configured for it: a slow request, and then a quick one",
			o: Options{OpaquePorts: []uint16{fakePort}}, play: one("asks", fakeJiffy, "asks", fakeJiffy, "answers", 18*second, "closes"),
			want: 18 * second, late: 2*fakeJiffy + exact, verdict: drain.Clean},
		{name: "a stream: three tokens and 12 s of silence", play: func(_ context.Context, k *fakeKernel) {
			c := k.connects()
			streams(c, 3)
			c.plays(nil, 12*second, "answers, closes")
		}, want: 13500 * time.Millisecond, late: exact, verdict: drain.Clean},
		{name: "one whose tokens came before the hook", before: func(k *fakeKernel) {
			streams(k.connects(), 3)
			time.Sleep(4 * second)
		}, play: func(_ context.Context, k *fakeKernel) {
			time.Sleep(8 * second)
			k.conns[0].closes()
		}, want: 8 * second, late: exact, verdict: drain.Clean},
		{name: "a pause that is longer than streams have: assumed", play: func(_ context.Context, k *fakeKernel) {
			streams(k.connects(), 3)
		}, want: 16500 * time.Millisecond, late: exact, verdict: drain.Assumed},
		{name: "a long response that came at once is none", play: one(append([]any{"asks"}, slices.Repeat([]any{"answers"}, 10)...)...), want: 10 * second, late: exact, verdict: drain.Assumed},
		{name: "nor is a slow one in one piece", before: func(k *fakeKernel) {
			k.connects().plays(nil, "asks", 10*second, "answers", 10*second)
		}, want: 5 * second, verdict: drain.Assumed},
		{name: "the next request ends a stream", before: func(k *fakeKernel) {
			streams(k.connects(), 10)
		}, play: func(_ context.Context, k *fakeKernel) {
			k.conns[0].plays(nil, second, "asks", 2*second, "answers")
		}, want: 5 * second, late: exact, verdict: drain.Assumed},
		{name: "a table that is no longer readable", play: func(_ context.Context, k *fakeKernel) {
			time.Sleep(second)
			k.mu.Lock()
			defer k.mu.Unlock()
			k.broken = true
		}, want: 25 * second, late: exact, verdict: drain.Cut},
		{name: "an idle client and one that never pauses, of an app that finishes", config: finishes, play: func(ctx context.Context, k *fakeKernel) {
			idle, c := k.connects(), k.connects()
			idle.plays(nil, "asks", fakeJiffy, "answers")
			for ctx.Err() == nil {
				c.plays(nil, "asks", fakeJiffy, "answers", second/10)
			}
		}, want: 10 * second, late: exact, verdict: drain.Clean},
		{name: "a request that takes longer, of an app that finishes", config: finishes, play: one("asks"), want: 5 * second, late: exact, verdict: drain.Clean},
		{name: "by hand, with a timeout", config: func(c drain.Config) drain.Config { return hook.Within(c, 20*second) },
			play: one("asks"), want: 20 * second, late: exact, verdict: drain.Cut, open: string(ClientLast)},
		{name: "a timeout shorter than the minimum drain", config: func(c drain.Config) drain.Config { return hook.Within(c, 3*second) },
			want: 3 * second, late: exact, verdict: drain.Clean},
		{name: "a short grace period: a quarter of it is left", config: func(c drain.Config) drain.Config {
			c.GracePeriod = 8 * second
			return hook.Until(c, timers.DefaultLeave)
		}, play: one("asks"), want: 6 * second, late: exact, verdict: drain.Cut, open: string(ClientLast)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &fakeKernel{acks: acks{inStride: map[ends]bool{}}}
				if !tt.blind {
					k.gone = make(chan struct{}, 1)
				}
				config := hook.Until(drain.DefaultConfig(), timers.DefaultLeave)
				if tt.config != nil {
					config = tt.config(config)
				}
				o := tt.o
				o.Ports, o.IdleGrace, o.Log = []uint16{fakePort}, config.IdleGrace, quiet()
				o.StreamPause = DefaultStreamPause
				if tt.before != nil {
					tt.before(k)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var played sync.WaitGroup
				defer played.Wait()
				defer cancel()
				if tt.play != nil {
					played.Go(func() { tt.play(ctx, k) })
				}
				synctest.Wait()
				r, err := hook.Wait(t.Context(), newPlane(o, k.kernel()), config, nil, quiet())
				must.Do(t, err)
				took := time.Duration(r.Duration)
				if took < tt.want || took > tt.want+tt.late || r.Verdict != tt.verdict {
					t.Errorf("%s after %v; want %s after %v and at most %v more\n%+v", r.Verdict, took, tt.verdict, tt.want, tt.late, r)
				}
				if tt.open != "" && (len(r.Open) != 1 || !strings.Contains(r.Open[0].Request, tt.open)) {
					t.Errorf("open: %+v", r.Open)
				}
			})
		})
	}
}

// streams asks and gets so many pieces, one each half second.
func streams(c *fakeConn, pieces int) {
	c.asks()
	for range pieces {
		time.Sleep(second / 2)
		c.answers()
	}
}

// Stopping the hook ends the watch at once.
func TestWaitStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{gone: make(chan struct{}, 1)}
		k.connects().asks()
		ctx, cancel := context.WithTimeout(t.Context(), 7*second)
		defer cancel()
		o := Options{Ports: []uint16{fakePort}, IdleGrace: 2 * second, Log: quiet()}
		r, err := hook.Wait(ctx, newPlane(o, k.kernel()), hook.Until(drain.DefaultConfig(), timers.DefaultLeave), nil, quiet())
		must.Do(t, err)
		if r.Verdict != drain.Quit || time.Duration(r.Duration) != 7*second {
			t.Errorf("%+v", r)
		}
	})
}

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// startNginx starts one before a backend and returns its process and address.
func startNginx(t *testing.T, backend string) (*os.Process, string, uint16) {
	t.Helper()
	program := peers.Need(t, "nginx")
	address, dir := nettest.FreeAddress(t, "127.0.0.1"), t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	must.Do(t, os.WriteFile(conf, []byte(peers.NginxConf(dir, address, backend)), 0o644))
	cmd := exec.Command(program, "-p", dir, "-c", conf)
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	polltest.NoError(t, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return cmd.Process, address, netip.MustParseAddrPort(address).Port()
}

// nginx closes its listeners at SIGQUIT, and its idle connections with them; a client that
// watched only the listeners would miss the response.
func TestNginx(t *testing.T) {
	for _, quit := range []bool{false, true} {
		t.Run(fmt.Sprintf("quit=%v", quit), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "127.0.0.1:0")
			process, address, port := startNginx(t, s.address)
			for range 5 {
				c := dial(t, address)
				for range 5 {
					c.Ask("/")
					c.Answer(t)
				}
			}
			c := dial(t, address)
			c.Ask("/slow")
			<-s.requests
			h := startHook(t, port, nil)
			if quit {
				must.Do(t, process.Signal(syscall.SIGQUIT))
			}
			h.stays()
			s.free <- struct{}{}
			c.Answer(t)
			if !quit {
				_ = c.Close()
			}
			want := drain.Assumed // nginx keeps its pool
			if quit {
				want = drain.Clean
			}
			r := h.ends(want)
			if took := time.Duration(r.Duration); took > doubtTime {
				t.Errorf("it took %v", took)
			}
		})
	}
}
