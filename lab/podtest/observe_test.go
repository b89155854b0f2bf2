package podtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// istioPod is a pod with a real Envoy in front of its app, as Istio configures it: what clients send is redirected to
// 15006, connections to the app come from 127.0.0.6 or ::6, and a request is tried three times if the app refuses.
func istioPod(t *testing.T) *pod {
	t.Helper()
	config, err := envoy.Bootstrap{Inbound: []envoy.Route{{Listen: ":15006", Protocol: "auto"}}}.Render("127.0.0.1:15000")
	if err != nil {
		t.Fatal(err)
	}
	route := []byte(`"route":{"cluster":"inbound|0",`)
	if !bytes.Contains(config, route) {
		t.Fatalf("no route in %s", config)
	}
	config = bytes.ReplaceAll(config, route, append(route, `"retry_policy":{"retry_on":"reset-before-request","num_retries":2},`...))
	config = bytes.ReplaceAll(config, []byte(`"address":"::","port_value":0`), []byte(`"address":"::6","port_value":0`))
	folder, err := os.MkdirTemp(filepath.Dir(program), "envoy") // the proxy's user may not look into our folders
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	file := filepath.Join(folder, "config.json")
	if err := errors.Join(os.WriteFile(file, config, 0o644), os.Chmod(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	p := newPod(t)
	p.Pod.AddAddress(t, "::6/128")
	p.sidecar = p.run(p.Pod.As(proxyUID, proxyUID), "envoy", nil, envoyProgram(t), "--config-path", file, "--disable-hot-restart", "--concurrency", "2", "--log-level", "warn")
	p.until("ready", func() bool {
		c := &http.Client{Transport: &http.Transport{DialContext: p.Pod.Dial, DisableKeepAlives: true}}
		response, err := c.Get("http://127.0.0.1:15000/ready")
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	return p
}

// slow is an app whose requests to /slow are answered once they may be.
type slow struct {
	*http.Server
	begun, may chan struct{}
}

func newSlow() *slow {
	s := &slow{begun: make(chan struct{}), may: make(chan struct{})}
	s.Server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			s.begun <- struct{}{}
			select {
			case <-s.may:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "{}")
	})}
	return s
}

// served reports whether a request was answered by the app, not by Envoy.
func (c *keptAlive) served(path string) bool {
	body, _, err := c.ask(path)
	return err == nil && body == "{}"
}

// TestObserveIstio compares what the observer counts in a pod with Istio's sidecar with what clients count: also the
// requests that Envoy answers with 503 because the app has ended.
func TestObserveIstio(t *testing.T) {
	const idle, busy, late = 5, 8, 10
	for _, tt := range []struct {
		name string
		end  func(p *pod, app *slow)
		late int // new clients afterwards
		want observe.Lost
	}{
		{"the app ends", func(_ *pod, app *slow) { _ = app.Close() }, late, observe.Lost{Unanswered: busy, Refused: late}},
		{"the app finishes its requests", func(_ *pod, app *slow) {
			close(app.may)
			_ = app.Shutdown(context.Background())
		}, 0, observe.Lost{}},
		{"Envoy ends first", func(p *pod, app *slow) {
			_ = p.sidecar.Kill()
			<-p.sidecar.Done()
			_ = app.Close()
		}, 0, observe.Lost{Unanswered: busy}},
	} {
		for _, family := range []string{"IPv4", "IPv6"} {
			t.Run(tt.name+"/"+family, func(t *testing.T) {
				t.Parallel()
				p, app := istioPod(t), newSlow()
				ln := p.Pod.Listen(t, "tcp", fmt.Sprintf(":%d", appPort))
				var serving sync.WaitGroup
				serving.Go(func() { _ = app.Serve(ln) })
				t.Cleanup(func() { _ = app.Close(); serving.Wait() })
				address := p.addresses()[family]
				w := p.observeIstio()
				for range idle {
					if !p.keepAlive(address).served("/") {
						t.Fatal("no answer")
					}
				}
				answers := make(chan bool, busy+late)
				for range busy {
					c := p.keepAlive(address)
					go func() { answers <- c.served("/slow") }()
					<-app.begun
				}
				if err := w.Begin(time.Now(), "test"); err != nil {
					t.Fatal(err)
				}
				tt.end(p, app)
				for range tt.late {
					answers <- p.keepAlive(address).served("/")
				}
				lost := 0
				for range busy + tt.late {
					if !<-answers {
						lost++
					}
				}
				got := w.End(time.Now(), observe.Exit{})
				if got.Lost != tt.want || got.Lost.Total() != lost || got.Open+got.Arrivals.Count != idle+busy+tt.late {
					t.Errorf("the clients lost %d; the observer: %+v\n%s", lost, got.Lost, got.Text())
				}
			})
		}
	}
}

// What is no HTTP is relayed: both connections of a request end without an answer, and it counts once.
func TestObserveRelayed(t *testing.T) {
	t.Parallel()
	p := istioPod(t)
	const busy = 8
	ln := p.Pod.Listen(t, "tcp", fmt.Sprintf(":%d", appPort))
	w := p.observeIstio()
	var clients []*keptAlive
	var app []net.Conn
	for range busy {
		c := p.keepAlive(p.Pod.TCP4(appPort))
		_, err1 := io.WriteString(c, "BLPOP queue 0\r\n")
		s, err2 := ln.Accept()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if line, err := bufio.NewReader(s).ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		clients, app = append(clients, c), append(app, s)
	}
	if err := w.Begin(time.Now(), "test"); err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	for _, s := range app {
		_ = s.Close()
	}
	for _, c := range clients {
		if text, err := c.r.ReadString('\n'); err == nil {
			t.Errorf("an answer: %q", text)
		}
		_ = c.Close()
	}
	if got := w.End(time.Now(), observe.Exit{}); got.Lost.Reset+got.Lost.Unanswered != busy || got.Open+got.Arrivals.Count < busy {
		t.Errorf("%+v\n%s", got.Lost, got.Text())
	}
}

// observeIstio watches the pod from now on, as the observer of a node does in the mesh.
func (p *pod) observeIstio() *observe.Watch {
	p.t.Helper()
	options := observe.Options{IgnorePorts: carrier.StatusPorts("istio")}
	options.ProxyPorts, options.Attempts = carrier.ProxyPorts("istio")
	w, err := observe.Open(p.Pod.Path(), options)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = w.Close() })
	if err := w.Standby(); err != nil {
		p.t.Fatal(err)
	}
	return w
}
