package pipe

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

func TestConnections(t *testing.T) {
	authority := certificatetest.New(t)
	g := startGate(t)
	p := startPipe(t, g, HTTP, secured(t, authority, mutualTLS), func(cfg *Config) {
		cfg.Inbound[0].Name = "web"
		cfg.Inbound = append(cfg.Inbound, Inbound{Listen: "127.0.0.1:0", App: cfg.Inbound[0].App, Protocol: TCP})
	})
	busy := dialTLS(t, p, &tls.Config{RootCAs: authority.Pool(), NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{authority.Sign("caller", 0)}})
	if _, err := io.WriteString(busy, get("/slow?\x41")); err != nil {
		t.Fatal(err)
	}
	<-g.requests
	silent := dialPipe(t, p)
	awaitActivity(t, p, 2, 1)
	raw, err := net.Dial("tcp", p.Addr(1).String())
	must.Do(t, err)
	awaitActivity(t, p, 3, 2)

	list := p.Connections()
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	c := list[0]
	if c.Peer != busy.LocalAddr().String() || c.Listener != "web" || c.Protocol != "http/1.1" || c.State != StateBusy || c.App != g.String() || c.Age <= 0 ||
		c.TLS.Version != "TLS 1.3" || c.TLS.ServerName != "app.test" || c.TLS.ALPN != "http/1.1" || c.TLS.Peer != "CN=caller" || c.Received < 300 || c.Sent < 300 ||
		c.Open != 1 || c.Requests[0].Line != "GET /slow?A" || c.Requests[0].Age <= 0 || c.Requests[0].Status != 0 {
		t.Errorf("the busy one: %+v", c)
	}
	if c := list[1]; c.Peer != silent.LocalAddr().String() || c.Protocol != "" || c.State != StateHandshake || c.Open != 0 {
		t.Errorf("the silent one: %+v", c)
	}
	if c := list[2]; c.Peer != raw.LocalAddr().String() || c.Listener != p.Addr(1).String() || c.Protocol != "tcp" || c.State != StateBusy {
		t.Errorf("the opaque one: %+v", c)
	}
	g.open()
	if _, err := http.ReadResponse(bufio.NewReader(busy), nil); err != nil {
		t.Fatal(err)
	}
	awaitActivity(t, p, 3, 1)
	if c := p.Connections()[0]; c.State != StateIdle || c.Idle <= 0 || c.Open != 0 {
		t.Errorf("the idle one: %+v", c)
	}
	_ = raw.Close()
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	awaitActivity(t, p, 0, 0)
	for _, c := range p.Connections() {
		if c.State != StateClosing {
			t.Errorf("after the end: %+v", c)
		}
	}
}

// Many connections can be listed at any time, while they open, serve requests and close.
func TestConnectionsOfMany(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	p := startPipe(t, app, HTTP)
	stop := load(20, func(int) func() bool {
		return func() bool {
			c, err := net.Dial("tcp", p.Addr(0).String())
			if err == nil {
				_, _ = io.WriteString(c, get("/"))
				_, _ = http.ReadResponse(bufio.NewReader(c), nil)
				_ = c.Close()
			}
			return err == nil
		}
	})
	for range 200 {
		for _, c := range p.Connections() {
			if c.Peer == "" || c.Listener == "" || c.State == "" {
				t.Errorf("%+v", c)
			}
		}
	}
	stop()
	p.Kill()
	if list := p.Connections(); len(list) != 0 {
		t.Errorf("after the end: %+v", list)
	}
}

func TestListenersCountForThemselves(t *testing.T) {
	app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	p := startPipe(t, app, HTTP, func(cfg *Config) {
		cfg.Inbound[0].Name = "first"
		cfg.Inbound = append(cfg.Inbound, Inbound{Listen: "127.0.0.1:0", App: "127.0.0.1:1", Protocol: TCP})
	})
	c := dialPipe(t, p)
	c.wantOK()
	awaitActivity(t, p, 1, 0)
	first, second := p.Listeners()[0], p.Listeners()[1]
	if first.Name != "first" || first.Addr.String() != p.Addr(0).String() || first.Open != 1 || first.Busy != 0 || first.AppOpen != 1 ||
		first.Stats.Connections != 1 || first.Stats.Connected != 1 || first.Stats.Requests != 1 || first.Stats.Responses[2] != 1 {
		t.Errorf("the listener that was used: %+v", first)
	}
	if second.Stats != (counters.Stats{}) || second.Open != 0 {
		t.Errorf("the other: %+v", second)
	}
	if sum := p.Stats(); sum != first.Stats {
		t.Errorf("the pipe's counters are %+v, its listeners' %+v", sum, first.Stats)
	}
	_ = c.Close()
	awaitActivity(t, p, 0, 0)
}

// Each request is counted once, by what its client got.
func TestDurations(t *testing.T) {
	p, c := startClient(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), HTTP)
	for range 2 {
		c.wantOK()
	}
	c.send("bad\r\n\r\n")
	c.rest()
	_ = c.Close()
	gone := startPipe(t, answering(t, "HTTP/1.1 500 Bad\r\nContent-Length: 20\r\nConnection: close\r\n\r\nok"), HTTP)
	c = dialPipe(t, gone)
	c.send(get("/truncated"))
	c.rest()
	_ = c.Close()
	_, unanswered, c := startWaiting(t, get("/"))
	_ = c.SetLinger(0) // a FIN would be a half-close, after which the app may answer
	_ = c.Close()
	for _, want := range []struct {
		p     *Pipe
		class int
		count uint64
	}{{p, 2, 2}, {gone, 5, 1}, {unanswered, 0, 1}} {
		awaitActivity(t, want.p, 0, 0)
		want.p.Kill()
		got := want.p.Durations(0)
		if len(got) != 1 || got[0].Protocol != "http/1.1" || got[0].Class != want.class || got[0].Count != want.count || got[0].Sum <= 0 ||
			got[0].Buckets[len(counters.Bounds)-1] != want.count {
			t.Errorf("%+v, want %d of class %d", got, want.count, want.class)
		}
	}
}
