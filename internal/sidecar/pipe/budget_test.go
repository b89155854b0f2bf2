package pipe

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

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
					return p.budget.Held() >= 64<<10*int64(min(len(all), 3)) || p.Stats().Evicted[tt.kind] > 0
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
			if held := p.budget.Held(); held != 0 {
				t.Errorf("%d bytes are held in the end", held)
			}
		})
	}
}

// A client that pipelines waits, when the budget is used up, until its first request is answered; nothing is lost.
func TestPipeliningWithAFullBudget(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	p.budget.Add(int(p.budget.Limit()))
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
