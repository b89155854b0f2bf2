package conformance

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// Pauses between a session's requests, milliseconds; one worker for each.
const (
	// busy always has a request in flight or is about to send one. The longest pause is that of
	// connections which are idle when such are closed.
	busy = "5,50,400,1900"

	// abrupt is for libraries that fail what they have open when a GOAWAY comes
	// (docs/endings.md): they rest, so that one can come in between.
	abrupt = "300"
)

// mostRaced is how many requests of a session may meet the closing of the idle
// connection that they were sent on, which HTTP/1.1 cannot exclude (docs/endings.md). One in
// some dozen sessions does on a busy machine; more in one are no accident.
const mostRaced = 2

// Sessions of real client libraries across the rolling of a pod: see session. None of their requests fails but one that
// met the close of its connection, by the pod's report and by what the balancer saw, and the pod ends with nothing cut.
func TestSessionsAcrossADrain(t *testing.T) {
	for _, tt := range []struct {
		client  string
		program program
		kind    string
		tls     bool
		version string
		pauses  string
		fails   int // at most; why stands in docs/endings.md
	}{
		{"Node fetch", node, "fetch", false, "h1", busy, 0},
		{"Node undici", node, "undici", false, "h1", busy, 0},
		{"Node undici h2 by ALPN", node, "undici-h2", true, "h2", abrupt, 1},
		{"Node http", node, "http", false, "h1", busy, 0},
		{"Node https", node, "http", true, "h1", busy, 0},
		{"Node http2 by prior knowledge", node, "http2", false, "h2", busy, 0},
		{"Node http2 by ALPN", node, "http2", true, "h2", busy, 0},
		{"Java HttpClient", java, "http1", false, "h1", busy, 0},
		{"Java HttpClient TLS", java, "http1", true, "h1", busy, 0},
		{"Java HttpClient declined h2c", java, "http2", false, "h1", busy, 0},
		{"Java HttpClient h2 by ALPN", java, "http2", true, "h2", abrupt, 1},
		{"OkHttp h2c by prior knowledge", java, "okhttp", false, "h2", busy, 1},
		{"Reactor Netty h2c by prior knowledge", java, "netty", false, "h2", busy, 2},
		{"Apache HttpClient h2c by prior knowledge", java, "apache", false, "h2", abrupt, 1},
		{"Jetty h2c by prior knowledge", java, "jetty", false, "h2", abrupt, 1},
		{"Python requests", python, "requests", false, "h1", busy, 0},
		{"Python requests TLS", python, "requests", true, "h1", busy, 0},
		{"Python urllib3", python, "urllib3", false, "h1", busy, 0},
		{"Python httpx", python, "httpx", false, "h1", busy, 0},
		{"Python httpx h2c by prior knowledge", python, "httpx-h2", false, "h2", abrupt, 0},
		{"Python httpx h2 by ALPN", python, "httpx-h2", true, "h2", abrupt, 0},
		{"Python aiohttp", python, "aiohttp", false, "h1", busy, 0},
		{"Python aiohttp TLS", python, "aiohttp", true, "h1", busy, 0},
	} {
		t.Run(tt.client, func(t *testing.T) {
			t.Parallel()
			s := newSession(3)
			service := startService(t, s.app)
			out, err := s.play(t, service, tt.program, tt.kind, tt.tls, tt.pauses)
			counts := sessionCounts.FindStringSubmatch(out)
			if counts == nil {
				t.Fatalf("%v\n%s", err, out)
			}
			requests, _ := strconv.Atoi(counts[1])
			failed, _ := strconv.Atoi(counts[2])
			met := min(s.raced, int(service.crossed.Load()), mostRaced)
			if requests < warm+longer || failed > tt.fails+met || err != nil && failed == 0 || strings.Contains(out, "/slow") || strings.Contains(out, "/drip") {
				t.Errorf("%v\n%s", err, out)
			}
			version := "h1"
			switch h1, h2 := s.h1.Load(), s.h2.Load(); {
			case h1 > 0 && h2 > 0:
				version = "h1 and h2"
			case h2 > 0:
				version = "h2"
			}
			if version != tt.version {
				t.Errorf("%d requests of HTTP/1.1, %d of HTTP/2: not %s", s.h1.Load(), s.h2.Load(), tt.version)
			}
			t.Logf("%s requests; %d of HTTP/1.1, %d of HTTP/2; %d failed, %d raced, %d crossed", counts[1], s.h1.Load(), s.h2.Load(), failed, s.raced, service.crossed.Load())
		})
	}
}

var sessionCounts = regexp.MustCompile(`(?m)^(\d+) requests, (\d+) failed$`)

// A WebSocket is open at the SIGTERM. Its client gets 1001, connects again and
// continues with the other pod.
func TestWebSocketsAcrossADrain(t *testing.T) {
	for _, tt := range []struct {
		client  string
		program program
		kind    string
		tls     bool
	}{
		{"Node ws", node, "ws", false},
		{"Node ws TLS", node, "ws", true},
		{"Java", java, "websocket", false},
		{"Java TLS", java, "websocket", true},
		{"Python websockets", python, "websockets", false},
		{"Python aiohttp", python, "aiohttp-ws", false},
		{"Python aiohttp TLS", python, "aiohttp-ws", true},
	} {
		t.Run(tt.client, func(t *testing.T) {
			t.Parallel()
			s := newSession(0)
			service := startService(t, s.app)
			out, err := s.play(t, service, tt.program, tt.kind, tt.tls, busy)
			if err != nil || !webSocketSession.MatchString(out) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The first is the old pod's, then the client has closed by itself.
var webSocketSession = regexp.MustCompile(`^closed: 1001 .*\nclosed: 1000 .*\n2 requests, 0 failed\n$`)

// play runs a client's script against a service that is rolled when the session is
// in progress. It returns the client's output.
func (s *session) play(t *testing.T, service *service, program program, kind string, tls bool, pauses string) (string, error) {
	t.Helper()
	url := "http://" + service.plain
	if tls {
		url = "https://" + service.tls
	}
	command := program(t, kind, url)
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, "SESSION_CA="+service.ca, "SESSION_PAUSES="+pauses, "NODE_EXTRA_CA_CERTS="+service.ca)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	must.Do(t, command.Start())
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- command.Wait() }()
	stop := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
	defer stop()

	select {
	case <-s.ready:
	case err := <-over:
		t.Fatalf("the client ended too early: %v\n%s", err, &out)
	}
	s.rollWhenReady(t, service)
	err := <-over
	return out.String(), err
}

// rollWhenReady rolls the service when the session has begun. The pod ends with nothing cut.
func (s *session) rollWhenReady(t *testing.T, service *service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	select {
	case <-s.ready:
	case <-ctx.Done():
		t.Error("the session does not begin")
		return
	}
	ending := time.AfterFunc(slowWork, func() { close(s.release) })
	defer ending.Stop()
	r, err := service.roll(ctx)
	if err != nil {
		t.Error(err)
	}
	if r.Verdict != "clean" || len(r.Open)+len(r.Faults) > 0 {
		t.Errorf("the pod's report: %+v", r)
	}
	s.raced = r.Raced
}

// A failed request is excused by the balancer's view: a request after the last response, and the close right then.
func TestCrossing(t *testing.T) {
	request := "GET /next HTTP/1.1\r\nHost: " + strings.Repeat("a", smallest) + "\r\n\r\n"
	for _, crosses := range []bool{true, false} {
		server := nettest.Listen(t, "127.0.0.1:0")
		go func() {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, len(request)))
			if !crosses {
				_, _ = io.WriteString(c, strings.Repeat("answer", smallest))
			}
			_ = c.Close()
		}()
		s := &service{old: &pod{plain: server.Addr().String()}}
		t.Run(strconv.FormatBool(crosses), func(t *testing.T) {
			c, err := net.Dial("tcp", s.balance(t, func(p *pod) string { return p.plain }))
			must.Do(t, err)
			defer c.Close()
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, c)
		})
		_ = server.Close()
		if got := s.crossed.Load() == 1; got != crosses {
			t.Errorf("it crossed: %v, want %v", got, crosses)
		}
	}
}
