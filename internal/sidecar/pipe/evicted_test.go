package pipe

import (
	"bufio"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/budget"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// room is the memory of a process with room for 23 connections and 224 KiB of unfinished requests.
func room(cfg *Config) { cfg.Memory = 5376 << 10 }

// wantServed has another client's request answered.
func wantServed(t *testing.T, p *Pipe) {
	t.Helper()
	c := dialPipe(t, p)
	c.wantOK()
}

// sinceLong makes each connection one that has been idle for a minute.
func sinceLong(p *Pipe) {
	for _, c := range p.all() {
		c.mu.Lock()
		c.idleSince = c.idleSince.Add(-time.Minute)
		c.mu.Unlock()
	}
}

// inBudget is how many bytes are held, and of connections that are to end.
func inBudget(p *Pipe) (held, leaving int64) {
	_, leaving = p.budget.Leaving()
	return p.budget.Held(), leaving
}

// A handshake that does not end gives way to others, and is closed at once.
func TestHandshakeIsEnded(t *testing.T) {
	p := startPipe(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), HTTP, secured(t, certificatetest.New(t)), room)
	first := dialPipe(t, p)
	hello := "\x16\x03\x01\x3e\x84\x01\x00\xff\xff" + strings.Repeat("x", 15000)
	first.send(hello)
	polltest.Eventually(t, "it is accounted for", func() bool { return p.budget.Held() > handshakeMemory })
	for range 8 {
		dialPipe(t, p).send(hello)
	}
	first.wantEnd()
	polltest.Eventually(t, "it is counted", func() bool { return p.Stats().Evicted[counters.EvictedHandshake] > 0 })
	polltest.Eventually(t, "none of those that are ended remains", func() bool { return p.existing.Load() == p.open.Load() })
	p.Kill()
	wantNothingHeld(t, p)
}

func wantNothingHeld(t *testing.T, p *Pipe) {
	t.Helper()
	if held, leaving := inBudget(p); held != 0 || leaving != 0 {
		t.Errorf("%d bytes are held in the end, %d are leaving", held, leaving)
	}
}

// With all connections taken, that which has been idle for the longest time ends for another; with HTTP/2 by a GOAWAY. The
// accept loop does not wait until a client reads it.
func TestIdleIsEnded(t *testing.T) {
	fill := func(t *testing.T, p *Pipe) (oldest *conn) {
		oldest = p.all()[0]
		for range p.mostConnections - 1 {
			dialPipe(t, p)
		}
		awaitActivity(t, p, int(p.mostConnections), 0)
		sinceLong(p)
		oldest.mu.Lock()
		defer oldest.mu.Unlock()
		oldest.idleSince = time.Now().Add(-time.Hour)
		return oldest
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		p, first := startClient(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), HTTP, room)
		first.wantOK()
		fill(t, p)
		wantServed(t, p)
		first.wantEnd()
		if n := p.Stats().Evicted[counters.EvictedIdle]; n != 1 {
			t.Errorf("%d were ended", n)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		p, first := startRaw(t, startNone(t), HTTP, room)
		polltest.Eventually(t, "it is HTTP/2, and the app has sent its SETTINGS", func() bool {
			all := p.all()
			if len(all) == 0 || all[0].modeNow() != modeH2 {
				return false
			}
			all[0].wmu.Lock()
			defer all[0].wmu.Unlock()
			return all[0].h2.down.Spoke
		})
		h2 := fill(t, p)
		h2.wmu.Lock() // as while a write waits for the client
		wantServed(t, p)
		h2.wmu.Unlock()
		first.want("GOAWAY 0 NO_ERROR")
	})
}

// startNone is an app that sends the SETTINGS of HTTP/2, and answers requests of HTTP/1.1.
func startNone(t *testing.T) net.Addr {
	return startApp(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			switch head := readHead(r); {
			case head == "":
				return
			case strings.HasPrefix(head, "PRI "):
				_ = http2.NewFramer(c, nil).WriteSettings()
			case strings.HasPrefix(head, "GET "):
				_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
			}
		}
	})
}

// While those that are ended for the memory's sake have not left, no more are ended than newcomers need.
func TestLeavingMakesRoom(t *testing.T) {
	p := startPipe(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), HTTP, room)
	begin := func(n int) {
		before := p.open.Load()
		for range n {
			dialPipe(t, p).send("G")
		}
		polltest.Eventually(t, "they are accounted for", func() bool {
			held, leaving := inBudget(p)
			return held+leaving == (before+int64(n))*tcp.SmallBuffer
		})
	}
	half := int(p.mostConnections) / 2
	begin(half)
	ending := p.all()
	for _, c := range ending {
		c.mu.Lock() // it cannot leave
	}
	release := sync.OnceFunc(func() {
		for _, c := range ending {
			c.mu.Unlock()
		}
	})
	defer release()
	for range ending {
		p.budget.EvictOldest()
	}
	begin(half)
	begin(1)
	for _, c := range p.all()[:half+1] {
		if c.share.IsEvicted() {
			t.Error("one was ended for another, although there will be room")
		}
	}
	release()
	polltest.Eventually(t, "they have left", func() bool {
		_, leaving := inBudget(p)
		return leaving == 0 && p.open.Load() == int64(half)+1
	})
}

// Those that have our FIN and do not send theirs wait no longer when there is no room for another client.
func TestLingeringGivesWay(t *testing.T) {
	p := startPipe(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), HTTP, room)
	for range p.mostConnections {
		c := dialPipe(t, p, "nonsense\r\n\r\n")
		if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Fatalf("%q", got)
		}
	}
	for range p.mostConnections/4 + 2 {
		wantServed(t, p)
	}
	p.Kill()
	if existing, hurried := p.existing.Load(), p.hurried.Load(); existing != 0 || hurried != 0 {
		t.Errorf("in the end %d exist, %d are to leave", existing, hurried)
	}
}

func TestSharesOfMemory(t *testing.T) {
	for _, tt := range []struct {
		limits              Limits
		tls                 bool
		connections, budget int64
	}{
		{Limits{}, false, 1 << 62, 64 << 20},
		{Limits{Memory: 64 << 20}, false, 853, 8 << 20},
		{Limits{Memory: 64 << 20}, true, 426, 8 << 20},
		{Limits{Memory: 256 << 20}, false, 4266, 40 << 20},
		{Limits{Memory: 16 << 20}, false, 71, (4 << 20) / 6},
		{Limits{Memory: 64 << 20, MaxConnections: NoLimit}, false, 1 << 62, 8 << 20},
	} {
		connections, unfinished := budget.Shares(tt.limits.Memory, tt.limits.MaxConnections != 0, tt.tls)
		if unfinished != tt.budget || connections != tt.connections && connections < 1<<61 {
			t.Errorf("%+v: %d connections, %d bytes", tt.limits, connections, unfinished)
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
	hello := "\x16\x03\x01\x3f\xff\x01" + strings.Repeat("x", 16000)
	block := wirehttp2.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS
		"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82" + "\x00\xc3\x50\x09\x00\x00\x00\x00\x01" + strings.Repeat("\x82", 40000)
	for name, tt := range map[string]struct {
		begin, rest string
		want        string // a pattern, or the frames of HTTP/2
		holds       int64
		kind        counters.Evicted
	}{
		"a head":         {head, "\r\n\r\n", `^HTTP/1\.1 431 `, 64 << 10, counters.EvictedHead},
		"a ClientHello":  {hello, "", "^$", 64 << 10, counters.EvictedHello},
		"a header block": {block, "", "GOAWAY 0 ENHANCE_YOUR_CALM", 64<<10 + 1, counters.EvictedHeaderBlock},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPipe(t, startNone(t), Auto, room)
			var all []*client
			for range 4 {
				c := dialPipe(t, p, tt.begin)
				all = append(all, c)
				polltest.Eventually(t, "it is accounted for", func() bool {
					return p.budget.Held() >= tt.holds*int64(min(len(all), 3)) || p.Stats().Evicted[tt.kind] > 0
				})
			}
			if tt.kind == counters.EvictedHeaderBlock {
				(&raw{client: all[0], Framer: http2.NewFramer(nil, all[0].r)}).want(tt.want)
			} else if got := all[0].rest(); !regexp.MustCompile(tt.want).MatchString(got) {
				t.Errorf("the oldest got %q", got)
			}
			if n := p.Stats().Evicted[tt.kind]; n != 1 {
				t.Errorf("%d were ended", n)
			}
			if tt.rest != "" {
				all[3].send(tt.rest)
				if resp := all[3].response("GET"); resp.StatusCode != 200 {
					t.Errorf("another got %s", resp.Status)
				}
			}
			for _, c := range all {
				_ = c.Close()
			}
			awaitNone(t, p)
			wantNothingHeld(t, p)
		})
	}
}

// A client that pipelines waits, when the budget is used up, until its first request is answered; nothing is lost.
func TestPipeliningWithAFullBudget(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	p.budget.Add(int(p.budget.Limit()))
	c := dialPipe(t, p, strings.Repeat(get("/"), 3))
	<-g.requests
	g.open()
	for range 3 {
		if resp := c.response("GET"); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
}
