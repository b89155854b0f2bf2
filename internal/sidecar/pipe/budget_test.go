package pipe

import (
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// shareOf is a connection without a socket.
func shareOf() *conn { return &conn{client: tcp.NewSocket(-1, netip.AddrPort{})} }

// Beyond the limit the oldest is ended, of those that hold much; what is served is not.
func TestBudgetEndsTheOldest(t *testing.T) {
	b := budget{limit: 1 << 20}
	quick, serving, streams := shareOf(), shareOf(), shareOf()
	if !b.hold(quick, 8<<10, unfinished(8<<10)) || !b.hold(serving, 64<<10, served) || !b.hold(streams, 64<<10, amongOthers) {
		t.Fatal("there is room")
	}
	var all []*conn
	for range 100 {
		c := shareOf()
		all = append(all, c)
		if !b.set(c, 64<<10, unfinished(64<<10)) {
			t.Fatal("the newest was ended")
		}
		if held := b.held.Load(); held > b.limit {
			t.Fatalf("%d bytes are held", held)
		}
	}
	if quick.share.evicted.Load() || serving.share.evicted.Load() || streams.share.evicted.Load() {
		t.Error("a small one, or one that is served, was ended")
	}
	kept := 0
	for i, c := range all {
		if !c.share.evicted.Load() {
			kept++
		} else if kept > 0 {
			t.Errorf("number %d was ended, an older one was not", i)
		}
	}
	if want := (1<<20 - 64<<10 - 64<<10 - 8<<10) / (64 << 10); kept != want {
		t.Errorf("%d are left, want %d", kept, want)
	}
	if b.set(all[0], 128<<10, large) {
		t.Error("one that is to end holds more")
	}
	for _, c := range append(all, quick, serving, streams) {
		if !b.hold(c, 0, served) {
			t.Error("one that holds nothing is refused")
		}
	}
	if b.held.Load() != 0 || b.leaving.Load() != 0 || b.leavers.Load() != 0 || b.evictOldest() {
		t.Errorf("in the end %d bytes are held, %d are leaving", b.held.Load(), b.leaving.Load())
	}
}

// One whose request becomes complete before it notices is not ended.
func TestBudgetForgives(t *testing.T) {
	b := budget{limit: 100 << 10}
	c := shareOf()
	b.set(c, 64<<10, medium)
	b.set(shareOf(), 64<<10, medium)
	if !c.share.evicted.Load() || !b.set(c, 0, served) || c.share.evicted.Load() {
		t.Error("its request is complete")
	}
	if !b.set(c, 8<<10, small) || b.held.Load() != 72<<10 {
		t.Errorf("%d bytes", b.held.Load())
	}
}

func TestSharesOfMemory(t *testing.T) {
	for _, tt := range []struct {
		limits              Limits
		tls                 bool
		connections, budget int64
	}{
		{Limits{}, false, 1 << 62, 64 << 20},
		{Limits{Memory: 64 << 20}, false, 1228, 12 << 20},
		{Limits{Memory: 64 << 20}, true, 614, 12 << 20},
		{Limits{Memory: 256 << 20}, false, 6144, 60 << 20},
		{Limits{Memory: 16 << 20}, false, 102, 1 << 20},
		{Limits{Memory: 64 << 20, MaxConnections: NoLimit}, false, 1 << 62, 12 << 20},
	} {
		connections, budget := tt.limits.shares(tt.tls)
		if budget != tt.budget || connections != tt.connections && connections < 1<<61 {
			t.Errorf("%+v: %d connections, %d bytes", tt.limits, connections, budget)
		}
	}
	if unsafe.Sizeof(request{})+maxLine > slotMemory {
		t.Errorf("a queued request takes %d bytes", unsafe.Sizeof(request{})+maxLine)
	}
}

// Each of these holds bytes before its request passes. The oldest is ended as its protocol allows, and is counted; the
// others' requests are served afterwards, and nothing is held in the end.
func TestUnfinishedIsEnded(t *testing.T) {
	head := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 30<<10)
	for name, tt := range map[string]struct {
		begin, want string
		kind        counters.Evicted
	}{
		"a head":        {head, "HTTP/1.1 431 ", counters.EvictedHead},
		"a ClientHello": {"\x16\x03\x01\x3f\xff\x01" + strings.Repeat("x", 16000), "", counters.EvictedHello},
	} {
		t.Run(name, func(t *testing.T) {
			app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			p := startPipe(t, app, Auto, func(cfg *Config) { cfg.Memory = 3200 << 10 }) // a budget of 200 KiB
			var all []*client
			for range 4 {
				c := dialPipe(t, p)
				c.send(tt.begin)
				all = append(all, c)
				polltest.Eventually(t, "it is accounted for", func() bool {
					return p.budget.held.Load() >= 64<<10*int64(min(len(all), 3)) || p.Stats().Evicted[tt.kind] > 0
				})
			}
			if got := all[0].rest(); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("the oldest got %.40q", got)
			}
			if n := p.Stats().Evicted[tt.kind]; n != 1 {
				t.Errorf("%d were ended", n)
			}
			if tt.want != "" {
				all[3].send("\r\n\r\n")
				if resp := all[3].response("GET"); resp.StatusCode != 200 {
					t.Errorf("another got %s", resp.Status)
				}
			}
			for _, c := range all {
				_ = c.Close()
			}
			awaitNone(t, p)
			if held := p.budget.held.Load(); held != 0 {
				t.Errorf("%d bytes are held in the end", held)
			}
		})
	}
}

// A client that pipelines waits, when the budget is used up, until its first request is answered; nothing is lost.
func TestPipeliningWithAFullBudget(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	p.budget.add(int(p.budget.limit))
	c := dialPipe(t, p)
	c.send(strings.Repeat(get("/"), 3))
	<-g.requests
	g.open()
	for range 3 {
		if resp := c.response("GET"); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
}
