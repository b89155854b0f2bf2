package mesh

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"

	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
)

// An app's hook waits for a request, not for an idle client, and leaves Envoy as it is: the container may only restart.
func TestAppWatchesOnly(t *testing.T) {
	p := startPod(t, "http")
	idle, busy := p.dial(), p.dial()
	idle.Ask("/")
	idle.Answer(t)
	busy.Ask("/slow")
	<-p.arrived
	r := p.hook(short(), nil)
	r.holds()
	p.release()
	if resp, _ := busy.Answer(t); resp.Close {
		t.Error("the hook of an app has drained Envoy")
	}
	r.returns(drain.Clean)
	r.hook.End(t.Context())
	idle.Ask("/")
	if resp, body := idle.Answer(t); resp.Close || body != "done" {
		t.Errorf("after the hook: %v %q", resp, body)
	}
	p.dial().Ask("/") // listens
}

// An app that fails its liveness probe is restarted: its hook waits neither for its requests nor for the minimum drain, and
// leaves Envoy as it is.
func TestRestartIsNotDelayed(t *testing.T) {
	p := startPod(t, "http")
	idle, busy := p.dial(), p.dial()
	idle.Ask("/")
	idle.Answer(t)
	busy.Ask("/slow")
	<-p.arrived
	c := short()
	c.MinimumDrain = patience
	fails := &probe.Probe{Exec: &probe.Exec{Command: []string{"false"}}}
	began := time.Now()
	r := p.hook(c, func(o *Options) { o.App = &hook.App{Liveness: fails} })
	r.returns(drain.Restarted)
	r.hook.End(t.Context())
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the hook took %v", took)
	}
	p.release()
	if resp, _ := busy.Answer(t); resp.Close {
		t.Error("the restart has drained Envoy")
	}
	idle.Ask("/")
	if resp, body := idle.Answer(t); resp.Close || body != "done" {
		t.Errorf("after the hook: %v %q", resp, body)
	}
}

// The hook of Envoy's own container drains, stops the listeners, and ends Envoy with a whole access log.
func TestSidecarDrains(t *testing.T) {
	p := startPod(t, "http")
	warm, idle, busy := p.dial(), p.dial(), p.dial()
	for _, c := range []*loadtest.Kept{warm, idle} {
		c.Ask("/")
		c.Answer(t)
	}
	busy.Ask("/slow")
	<-p.arrived
	r := p.hook(short(), func(o *Options) { o.Sidecar = true })
	r.holds()
	p.release()
	if resp, body := busy.Answer(t); !resp.Close || body != "done" {
		t.Errorf("the request in flight got %v %q; want Connection: close", resp, body)
	}
	r.returns(drain.Clean)
	if c, err := net.Dial("tcp", p.listen); err == nil {
		_ = c.Close()
		t.Error("Envoy still listens")
	}
	r.hook.End(t.Context())
	<-p.envoy.Exited()
	if log := p.accessLog(); strings.Count(log, "\n") != 3 || !strings.Contains(log, "/slow") {
		t.Errorf("access log:\n%s", log)
	}
}

// A hook waits for requests in flight, and for open connections of protocols that are not HTTP.
func TestProtocols(t *testing.T) {
	for _, tt := range []struct {
		name, protocol string
		begin          func(p *pod) (end func())
	}{
		{"HTTP/2: a slow request and quick ones on one connection", "http", func(p *pod) func() {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			get := func(path string) {
				resp, err := (&http.Client{Transport: transport}).Get("http://" + p.listen + path)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			slow := make(chan struct{})
			go func() { defer close(slow); get("/slow") }()
			<-p.arrived
			quick, stop := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(quick)
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						get("/")
					}
				}
			}()
			return func() { p.release(); <-slow; close(stop); <-quick; transport.CloseIdleConnections() }
		}},
		{"WebSocket", "http", func(p *pod) func() {
			c := p.dial()
			fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: app\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			if resp, err := http.ReadResponse(c.R, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%+v, %v", resp, err)
			}
			return func() { _ = c.Close() }
		}},
		{"opaque TCP", "tcp", func(p *pod) func() {
			c := p.dial()
			fmt.Fprint(c, "\x00\x01opaque")
			return func() { _ = c.Close() }
		}},
		{"half a request", "auto", func(p *pod) func() {
			c := p.dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHos")
			return func() { _ = c.Close() }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPod(t, tt.protocol)
			end := tt.begin(p)
			r := p.hook(short(), nil)
			r.holds()
			end()
			r.returns(drain.Clean)
		})
	}
}
