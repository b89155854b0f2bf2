//go:build linkerd

package podtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/lab/linkerd"
)

// linkerd's own numbers: the user of its proxy, and the ports that linkerd-init redirects to.
const (
	linkerdUID      = 2102
	linkerdInbound  = "4143"
	linkerdOutbound = "4140"
	linkerdAdmin    = 4191
)

// meshed is a pod of linkerd: the redirect of linkerd-init, linkerd's proxy, and an app that serves HTTP/1.1 and HTTP/2.
type meshed struct {
	*pod
	proxy *container
}

// newMeshed starts a pod without an app's process: the test itself serves.
func newMeshed(t *testing.T) *meshed {
	t.Helper()
	binary := peers.Need(t, "linkerd2-proxy")
	p := &pod{Net: nettest.New(t), t: t}
	capture := p.run(p.Pod, "capture", nil, program, "capture", "-i", "*", "-z", linkerdInbound, "-p", linkerdOutbound, "-u", fmt.Sprint(linkerdUID),
		"-g", fmt.Sprint(linkerdUID), "-d", fmt.Sprint(linkerdAdmin))
	if err := capture.wait(t); err != nil {
		t.Fatalf("capture: %v\n%s", err, capture.log)
	}
	identity, err := linkerd.NewIdentity()
	must.Do(t, err)
	dir, err := os.MkdirTemp("", "linkerd") // the proxy's user reads it
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	control := p.Pod.Listen(t, "tcp", "127.0.0.1:0")
	environment, err := identity.Environment(dir, control.Addr().String())
	must.Do(t, errors.Join(err, os.Chmod(dir, 0o755)))
	controller := identity.Server()
	go func() { _ = controller.Serve(control) }()
	t.Cleanup(controller.Stop)
	m := &meshed{pod: p}
	m.proxy = p.run(p.Pod.As(linkerdUID, linkerdUID), "linkerd2-proxy", append(environment,
		"LINKERD2_PROXY_INBOUND_IPS="+p.Pod.IPv4.String(), "LINKERD2_PROXY_SHUTDOWN_ENDPOINT_ENABLED=true",
		fmt.Sprintf("LINKERD2_PROXY_ADMIN_LISTEN_ADDR=0.0.0.0:%d", linkerdAdmin),
		"LINKERD2_PROXY_LOG=warn,linkerd=info"), binary)
	p.sidecar = m.proxy
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "quick") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(3 * time.Second)
		fmt.Fprint(w, "slow")
	})
	mux.HandleFunc("/first", func(w http.ResponseWriter, r *http.Request) { // the app speaks first, and the client ends the stream
		if r.ProtoMajor == 1 {
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	})
	nettest.Serve(t, p.Pod.Listen(t, "tcp", fmt.Sprintf(":%d", appPort)), mux)
	p.until("ready", func() bool {
		code, _, err := p.get(p.Pod.TCP4(linkerdAdmin), "/ready")
		return err == nil && code == http.StatusOK
	})
	return m
}

// hook runs the app's preStop as injection writes it, with short timers, and returns its report.
func (m *meshed) hook(protocol string, more ...string) drain.Report {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "report")
	hook := m.run(m.Pod, "hook", nil, append([]string{program, "wait", "--ports", fmt.Sprintf("%d/%s", appPort, protocol),
		"--linkerd", fmt.Sprint(linkerdAdmin), "--timeout", "15s", "--minimum-drain", "200ms", "--quiet-time", "0s", "--report", path}, more...)...)
	if err := hook.wait(m.t); err != nil {
		m.t.Fatalf("hook: %v\n%s", err, hook.log)
	}
	text, err := os.ReadFile(path)
	must.Do(m.t, err)
	var report drain.Report
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&report); err != nil {
		m.t.Fatalf("report %q: %v", text, err)
	}
	return report
}

// fetch sends a request through the proxy.
func (m *meshed) fetch(client *http.Client, path string) (string, error) {
	resp, err := client.Get("http://" + m.Pod.TCP4(appPort) + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body)), err
}

// kept returns a client that keeps its connection, and has used it.
func (m *meshed) kept(h2 bool) *http.Client {
	m.t.Helper()
	client := m.client(h2)
	client.Transport.(*http.Transport).DisableKeepAlives = false
	if got, err := m.fetch(client, "/quick"); err != nil || got != "200 quick" {
		m.t.Fatalf("through the proxy: %q, %v", got, err)
	}
	return client
}

// TestLinkerd runs linkerd's real proxy in a pod. The hook by sockets must hold the app for the slow request,
// although the client keeps its connection and, on HTTP/2, quick responses pass on the connection of the slow one; and it
// must return soon afterwards, although linkerd's proxy keeps pooled connections to the app for 90 s.
func TestLinkerd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		protocol string
		h2       bool
	}{{"http", false}, {"http2", true}} {
		t.Run(test.protocol, func(t *testing.T) {
			t.Parallel()
			m := newMeshed(t)
			client := m.kept(test.h2)
			answered := make(chan time.Time, 1)
			begun := time.Now()
			go func() {
				if got, err := m.fetch(client, "/slow"); err != nil || got != "200 slow" {
					t.Errorf("the slow request: %q, %v", got, err)
				}
				answered <- time.Now()
			}()
			time.AfterFunc(time.Second, func() { _, _ = m.fetch(client, "/quick") })
			time.Sleep(100 * time.Millisecond) // the request reaches the app; without it the hook would only wait for less
			report := m.hook(test.protocol)
			returned := time.Now()
			select {
			case at := <-answered:
				t.Logf("response after %v, the hook returned %v later", at.Sub(begun), returned.Sub(at))
			default:
				t.Error("the hook returned before the response")
			}
			if report.Verdict != drain.Clean {
				t.Errorf("idle connections: %+v", report)
			}
			must.Do(t, m.proxy.Terminate())
			if err := m.proxy.wait(t); err != nil {
				t.Errorf("linkerd2-proxy: %v", err)
			}
		})
	}
}

// TestLinkerdCounters: what linkerd's proxy does not count, or never counts as ended, is not taken for idle.
func TestLinkerdCounters(t *testing.T) {
	t.Parallel()
	m := newMeshed(t)
	client := m.kept(true)
	r, w := io.Pipe()
	req, err := http.NewRequest(http.MethodPost, "http://"+m.Pod.TCP4(appPort)+"/first", r)
	must.Do(t, err)
	resp, err := client.Do(req) // the app speaks first, and linkerd's request_total does not have the request
	must.Do(t, err)
	defer resp.Body.Close()
	if report := m.hook("http2", "--timeout", "3s"); report.Verdict != drain.Cut {
		t.Errorf("a stream without a byte of the client: %+v", report)
	}
	_ = w.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	if report := m.hook("http2", "--timeout", "3s"); report.Verdict != drain.Clean {
		t.Errorf("after its end: %+v", report)
	}
	req, err = http.NewRequest(http.MethodGet, "http://"+m.Pod.TCP4(appPort)+"/upgrade", nil)
	must.Do(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	upgraded, err := m.client(false).Transport.RoundTrip(req)
	must.Do(t, err)
	defer upgraded.Body.Close()
	if upgraded.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("WebSocket: %s", upgraded.Status)
	}
	talk := time.NewTicker(200 * time.Millisecond)
	defer talk.Stop()
	go func() {
		for range talk.C {
			if _, err := upgraded.Body.(io.Writer).Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	if report := m.hook("http", "--timeout", "4s"); report.Verdict != drain.Cut {
		t.Errorf("a WebSocket on which bytes move: %+v", report)
	}
}

// TestLinkerdShutdown: the proxy closes a kept connection once its request has its response, and ends.
func TestLinkerdShutdown(t *testing.T) {
	t.Parallel()
	m := newMeshed(t)
	client := m.kept(false)
	slow := make(chan error, 1)
	go func() {
		got, err := m.fetch(client, "/slow")
		if err == nil && got != "200 slow" {
			err = fmt.Errorf("unexpected response %q", got)
		}
		slow <- err
	}()
	time.Sleep(100 * time.Millisecond) // the request reaches the app; without it there is nothing to answer
	if report := m.hook("http", "--linkerd-shutdown"); report.Verdict != drain.Clean || len(report.Faults) > 0 {
		t.Errorf("%+v", report)
	}
	if err := <-slow; err != nil {
		t.Error(err)
	}
	if err := m.proxy.wait(t); err != nil {
		t.Errorf("linkerd2-proxy: %v", err)
	}
}
