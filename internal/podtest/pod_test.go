package podtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/gateway"
	"github.com/lastcall-dev/lastcall/internal/nettest"
)

const (
	patience = 20 * time.Second
	proxyUID = 1337
	appPort  = 8080
)

// program is lastcall, built once.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "podtest")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // the proxy's user is not ours
			panic(err)
		}
		program = filepath.Join(dir, "lastcall")
		build := exec.Command("go", "build", "-o", program, "../../cmd/lastcall")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build lastcall: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// pod is a pod with its traffic captured and a sidecar in it.
type pod struct {
	*nettest.Net
	t     *testing.T
	agent *exec.Cmd
	log   *buffer
	done  chan error
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func start(t *testing.T, env ...string) *pod {
	t.Helper()
	p := &pod{Net: nettest.New(t), t: t, log: &buffer{}, done: make(chan error, 1)}
	capture := exec.Command(program, "capture")
	capture.Stdout, capture.Stderr = p.log, p.log
	if err := p.Pod.Start(capture); err != nil {
		t.Fatal(err)
	}
	if err := capture.Wait(); err != nil {
		t.Fatalf("capture: %v\n%s", err, p.log)
	}
	p.agent = exec.Command(program, "agent", "--capture", "--termination-log", "", "--admin-address", "off")
	p.agent.Env = append(append(os.Environ(), "MINIMUM_DRAIN_DURATION=200ms", "LASTCALL_QUIET_TIME=0s", "LASTCALL_IDLE_GRACE=50ms", "GORACE=atexit_sleep_ms=0"), env...)
	p.agent.Stdout, p.agent.Stderr = p.log, p.log
	if err := p.Pod.As(proxyUID, proxyUID).Start(p.agent); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.agent.Wait() }()
	t.Cleanup(func() {
		_ = p.agent.Process.Kill()
		select {
		case <-p.done:
		case <-time.After(patience):
		}
		if t.Failed() {
			t.Logf("the agent:\n%s", p.log)
		}
	})
	p.until("ready", func() bool {
		resp, err := p.client(false).Get("http://" + p.Pod.TCP4(15020) + "/healthz/ready")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return p
}

func (p *pod) until(what string, f func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not %s\n%s", what, p.log)
		}
	}
}

// client asks from the client's namespace.
func (p *pod) client(h2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: p.Client.Dial, Protocols: protocols, DisableKeepAlives: !h2,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// serve runs an HTTP app in the pod, which says who asked.
func (p *pod) serve(h http.HandlerFunc) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: protocols}
	ln := p.Pod.Listen(p.t, "tcp", fmt.Sprintf(":%d", appPort))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	p.t.Cleanup(func() { _ = s.Close(); <-done })
}

func (p *pod) addresses() map[string]string {
	return map[string]string{"IPv4": p.Pod.TCP4(appPort), "IPv6": p.Pod.TCP6(appPort)}
}

func TestInboundHTTP(t *testing.T) {
	p := start(t)
	p.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " from ", r.RemoteAddr) })
	for family, address := range p.addresses() {
		for _, h2 := range []bool{false, true} {
			resp, err := p.client(h2).Get("http://" + address + "/")
			if err != nil {
				t.Errorf("%s, HTTP/2 %v: %v", family, h2, err)
				continue
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			loopback := strings.Contains(string(b), "from 127.0.0.6:") || strings.Contains(string(b), "from [::1]:")
			if resp.StatusCode != 200 || !loopback || strings.HasPrefix(string(b), "HTTP/2.0") != h2 {
				t.Errorf("%s, HTTP/2 %v: %d %s; want it to come through the pipe", family, h2, resp.StatusCode, b)
			}
		}
	}
}

// Protocols in which the server speaks first, and TLS, whose bytes mean nothing.
func TestInboundOpaque(t *testing.T) {
	p := start(t)
	ln := p.Pod.Listen(t, "tcp", ":3306")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); fmt.Fprint(c, "J\x00\x00\x00\x0b8.0.36\n"); _, _ = io.Copy(c, c) }()
		}
	}()
	certificate, err := gateway.SelfSigned([]string{"shop"})
	if err != nil {
		t.Fatal(err)
	}
	secure := tls.NewListener(p.Pod.Listen(t, "tcp", ":8443"), &tls.Config{Certificates: []tls.Certificate{certificate}})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.TLS.ServerName) })}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(secure) }()
	t.Cleanup(func() { _ = server.Close(); <-done })

	for _, address := range []string{p.Pod.TCP4(3306), p.Pod.TCP6(3306)} {
		c, err := p.Client.Dial(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		r := bufio.NewReader(c)
		if line, err := r.ReadString('\n'); err != nil || !strings.HasSuffix(line, "8.0.36\n") {
			t.Errorf("%s: greeting %q, %v", address, line, err)
		}
		fmt.Fprint(c, "query\n")
		if line, err := r.ReadString('\n'); err != nil || line != "query\n" {
			t.Errorf("%s: answer %q, %v", address, line, err)
		}
		c.Close()
	}
	resp, err := p.client(false).Get("https://" + p.Pod.TCP4(8443) + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// What the app says to others goes through the sidecar, which the other side
// does not see: it comes from the pod.
func TestOutbound(t *testing.T) {
	p := start(t)
	for _, address := range []string{p.Client.TCP4(5432), p.Client.TCP6(5432)} {
		ln := p.Client.Listen(t, "tcp", address)
		came := make(chan string, 1)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			b, _ := io.ReadAll(c)
			fmt.Fprint(c, "got it")
			came <- string(b)
		}()
		c, err := p.Pod.Dial(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "a query")
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(c); err != nil || string(b) != "got it" || <-came != "a query" {
			t.Errorf("%s: %q, %v", address, b, err)
		}
		c.Close()
	}
	if n := p.metric("lastcall_outbound_connections_total"); n != "2" {
		t.Errorf("%s outbound connections were counted; want 2", n)
	}
	// A destination that refuses is told to the app, by a reset of what the pipe had accepted.
	c, err := p.Pod.Dial(context.Background(), "tcp", p.Client.TCP4(1))
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("of a destination that refuses: %v; want a reset", err)
	}
}

func (p *pod) metric(name string) string {
	p.t.Helper()
	resp, err := p.client(false).Get("http://" + p.Pod.TCP4(15020) + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The order of the end: what is in flight inbound is answered; then the app can
// still open new connections to others; when it is gone, so is the sidecar.
func TestOrder(t *testing.T) {
	p := start(t)
	asked, free := make(chan struct{}, 1), make(chan struct{})
	ln := p.Pod.Listen(t, "tcp", fmt.Sprintf(":%d", appPort))
	app := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-free
		fmt.Fprint(w, "done")
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = app.Serve(ln) }()
	database := p.Client.Listen(t, "tcp", p.Client.TCP4(5432))
	go func() {
		for {
			c, err := database.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()

	answer := make(chan error, 1)
	go func() {
		resp, err := p.client(false).Get("http://" + p.Pod.TCP4(appPort) + "/")
		if err == nil {
			var b []byte
			b, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(b) != "done" {
				err = errors.Join(err, fmt.Errorf("%d %q", resp.StatusCode, b))
			}
		}
		answer <- err
	}()
	<-asked
	_ = p.agent.Process.Signal(syscall.SIGTERM) // a classic sidecar gets it together with the app
	p.until("waiting", func() bool { return strings.Contains(p.log.String(), "phase=waiting") })
	close(free)
	if err := <-answer; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	p.until("drained", func() bool { return strings.Contains(p.log.String(), "outbound goes on until the app is gone") })
	for i := range 20 { // the app's last words, each on a connection of its own
		c, err := p.Pod.Dial(context.Background(), "tcp", p.Client.TCP4(5432))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "commit %d\n", i)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != fmt.Sprintf("commit %d\n", i) {
			t.Fatalf("commit %d: %q, %v", i, line, err)
		}
		c.Close()
	}
	select {
	case err := <-p.done:
		t.Fatalf("the sidecar went before the app: %v", err)
	default:
	}
	_ = app.Close() // the app ends
	<-served
	gone := time.Now()
	select {
	case err := <-p.done:
		p.done <- err
		if err != nil {
			t.Errorf("exit: %v", err)
		}
		t.Logf("the sidecar left %v after the app", time.Since(gone).Round(time.Millisecond))
	case <-time.After(patience):
		t.Fatal("the sidecar stays though the app is gone")
	}
}
