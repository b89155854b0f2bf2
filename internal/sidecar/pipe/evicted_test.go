package pipe

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// room is the memory of a process with room for 20 connections and 200 KiB of unfinished requests.
func room(cfg *Config) { cfg.Memory = 3200 << 10 }

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

// A header block that does not end holds memory. The oldest gets a GOAWAY and a FIN, and does not wait for its client's.
func TestHeaderBlockIsEnded(t *testing.T) {
	p := startPipe(t, startH2(t, func(http.ResponseWriter, *http.Request) {}), HTTP, room)
	var all []*raw
	for range 4 {
		r := dialRaw(t, p)
		r.send("\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82" + "\x00\xc3\x50\x09\x00\x00\x00\x00\x01" + strings.Repeat("\x82", 40000))
		all = append(all, r)
		polltest.Eventually(t, "it is accounted for", func() bool {
			return p.budget.Held() >= 40000*int64(min(len(all), 3)) || p.Stats().Evicted[counters.EvictedHeaderBlock] > 0
		})
	}
	all[0].want("GOAWAY 0 ENHANCE_YOUR_CALM")
	if n := p.Stats().Evicted[counters.EvictedHeaderBlock]; n != 1 {
		t.Errorf("%d were ended", n)
	}
	for _, r := range all {
		_ = r.Close()
	}
	awaitNone(t, p)
	if held, leaving := inBudget(p); held != 0 || leaving != 0 {
		t.Errorf("%d bytes are held in the end, %d are leaving", held, leaving)
	}
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
	if held, leaving := inBudget(p); held != 0 || leaving != 0 {
		t.Errorf("%d bytes are held in the end, %d are leaving", held, leaving)
	}
}

// With all connections taken, that which has been idle for the longest time ends for another; with HTTP/2 by a GOAWAY. The
// accept loop does not wait until a client reads it.
func TestIdleIsEnded(t *testing.T) {
	t.Run("HTTP/1.1", func(t *testing.T) {
		p := startPipe(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), HTTP, room)
		first := dialPipe(t, p)
		first.wantOK()
		for range p.mostConnections - 1 {
			dialPipe(t, p)
		}
		awaitActivity(t, p, int(p.mostConnections), 0)
		sinceLong(p)
		oldest := p.all()[p.mostConnections-1]
		oldest.mu.Lock()
		oldest.idleSince = time.Now().Add(-time.Hour)
		oldest.mu.Unlock()
		wantServed(t, p)
		first.wantEnd()
		if n := p.Stats().Evicted[counters.EvictedIdle]; n != 1 {
			t.Errorf("%d were ended", n)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		app := startNone(t)
		p := startPipe(t, app, HTTP, room)
		first := dialRaw(t, p)
		polltest.Eventually(t, "it is HTTP/2, and the app has sent its SETTINGS", func() bool {
			all := p.all()
			if len(all) == 0 || all[0].modeNow() != modeH2 {
				return false
			}
			all[0].wmu.Lock()
			defer all[0].wmu.Unlock()
			return all[0].h2.down.Spoke
		})
		h2 := p.all()[0]
		for range p.mostConnections - 1 {
			dialPipe(t, p)
		}
		awaitActivity(t, p, int(p.mostConnections), 0)
		sinceLong(p)
		h2.mu.Lock()
		h2.idleSince = time.Now().Add(-time.Hour)
		h2.mu.Unlock()
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
		c := dialPipe(t, p)
		c.send("nonsense\r\n\r\n")
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
