package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

// held is a termination whose drain lasts until a second signal.
func held() Termination {
	return Termination{GracePeriod: time.Hour, MinDrain: 50 * time.Minute, FailReadinessAfter: Never}
}

// draining starts the drain and returns when it has begun.
func (r *running) draining(t *testing.T) {
	t.Helper()
	r.stop()
	r.log.until(t, "then waiting for active connections")
}

// During a drain each response has Connection: close, on old and new connections. New ones are still served.
func TestDrainKeepAlive(t *testing.T) {
	g := start(t, setup{Endpoints: []string{raw(t, answers)}, Termination: held()})
	defer func() { g.signals <- drain.Terminate }()
	const ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	before := dial(t, g.addr)
	r := bufio.NewReader(before)
	say(t, before, ask)
	if resp, _ := readResponse(t, r); resp.Close {
		t.Error("Connection: close before the drain")
	}
	g.draining(t)
	for name, c := range map[string]net.Conn{"a kept connection": before, "a new one": dial(t, g.addr)} {
		r := bufio.NewReader(c)
		say(t, c, ask)
		if resp, body := readResponse(t, r); resp.StatusCode != 200 || body != "ok" || !resp.Close {
			t.Errorf("%s: %s %q, closing %v", name, resp.Status, body, resp.Close)
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want EOF", name, err)
		}
	}
}

// HTTP/2: a request in flight is completed, and the next one uses a new connection.
func TestDrainHTTP2(t *testing.T) {
	addr, arrived, more := slowApp(t)
	g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t), Termination: held()})
	defer func() { g.signals <- drain.Terminate }()
	c, url := g.client(t, true)
	got := make(chan string, 2)
	ask := func() {
		var reused bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			got <- err.Error()
			return
		}
		resp, err := c.Do(req)
		if err != nil {
			got <- err.Error()
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		got <- fmt.Sprint(resp.Proto, " ", resp.StatusCode, " ", string(body), " ", err, " reused=", reused)
	}
	go ask()
	within(t, "request", arrived)
	g.draining(t)
	close(more)
	if got := within(t, "response", got); got != "HTTP/2.0 200 ok <nil> reused=false" {
		t.Error(got)
	}
	go ask() // its connection has a GOAWAY
	within(t, "request", arrived)
	if got := within(t, "response", got); got != "HTTP/2.0 200 ok <nil> reused=false" {
		t.Error(got)
	}
}

// echo is an app that echoes WebSocket messages, and sends the end of the connection to the channel.
func echo(t *testing.T) (addr string, ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			ended <- err
			return
		}
		defer func() { _ = c.CloseNow() }()
		c.SetReadLimit(1 << 20)
		for {
			kind, b, err := c.Read(r.Context())
			if err == nil {
				err = c.Write(r.Context(), kind, b)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), ended
}

// A WebSocket is busy for as long as it is open, and both sides get a close frame at the last
// call, 1001.
func TestDrainWebSocket(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%v", secure), func(t *testing.T) {
			addr, ended := echo(t)
			o := setup{Endpoints: []string{addr}, Termination: held()}
			if secure {
				o.Certificates = selfSigned(t)
			}
			g := start(t, o)
			client, url := g.client(t, false)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c, _, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1), &websocket.DialOptions{HTTPClient: &http.Client{Transport: client.Transport}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.CloseNow() }()
			for _, n := range []int{0, 1, 125, 126, 65535} { // each form of a frame's length
				message := strings.Repeat("x", n)
				if err := c.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
					t.Fatal(err)
				}
				c.SetReadLimit(1 << 20)
				if _, b, err := c.Read(ctx); err != nil || string(b) != message {
					t.Fatalf("%d bytes came back of %d, %v", len(b), n, err)
				}
			}
			g.draining(t)
			if err := c.Write(ctx, websocket.MessageText, []byte("still here")); err != nil {
				t.Fatal(err)
			}
			if _, b, err := c.Read(ctx); err != nil || string(b) != "still here" {
				t.Errorf("while draining: %q, %v", b, err)
			}
			g.signals <- drain.Terminate // the last call
			if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
				t.Errorf("the client got %v, want 1001", err)
			}
			if err := within(t, "end at the endpoint", ended); websocket.CloseStatus(err) != websocket.StatusGoingAway {
				t.Errorf("the endpoint got %v, want 1001", err)
			}
			r := g.ended(t)
			if len(r.Open) != 1 || r.Open[0].Protocol != "websocket" || r.Open[0].Ending != "close frame 1001" {
				t.Errorf("report %+v", r)
			}
			g.access.until(t, " 101 DT last_call ")
		})
	}
}

// The close frame goes in between two frames, not into the midst of one.
func TestWebSocketInTheMidstOfAFrame(t *testing.T) {
	told := make(chan string, 1)
	addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := readRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x82\x04ab")
		var last [8]byte
		_, _ = io.ReadFull(r, last[:])
		told <- string(last[:])
		_, _ = io.WriteString(c, "cd\x82\x01e") // the second frame is too late
		_, _ = io.Copy(io.Discard, r)
	})
	g := start(t, setup{Endpoints: []string{addr}, Termination: held()})
	c := dial(t, g.addr)
	say(t, c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	var frame [4]byte
	if _, err := io.ReadFull(r, frame[:]); err != nil {
		t.Fatal(err)
	}
	g.draining(t)
	g.signals <- drain.Terminate
	got := []byte(within(t, "the endpoint's close frame", told))
	for i := range got[6:] { // a client's payload is masked (RFC 6455, 5.3)
		got[6+i] ^= got[2+i]
	}
	if string(got[:2])+string(got[6:]) != "\x88\x82\x03\xe9" {
		t.Errorf("the endpoint got %q", got)
	}
	rest, err := io.ReadAll(r)
	if want := "cd\x88\x02\x03\xe9"; string(rest) != want || err != nil {
		t.Errorf("got %q, %v, want %q", rest, err, want)
	}
}

// Health checks hold nothing up: neither one that is being answered, nor those that keep coming.
func TestHealthChecksDoNotCount(t *testing.T) {
	arrived := make(chan struct{}, 8)
	addr := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) {
		if _, err := readRequest(r); err == nil {
			arrived <- struct{}{}
			_, _ = r.ReadByte()
		}
	})
	for _, agent := range []string{"kube-probe/1.34", "ELB-HealthChecker/2.0", "GoogleHC/1.0", "Mozilla/5.0 (compatible; Cloudflare-Traffic-Manager/1.0; +https://www.cloudflare.com/traffic-manager/; pool-id: 1)"} {
		g := start(t, setup{Endpoints: []string{addr}})
		c := dial(t, g.addr)
		say(t, c, "GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: "+agent+"\r\n\r\n")
		within(t, "request", arrived)
		g.stop()
		if r := g.ended(t); r.Verdict != drain.Clean || r.Late != 0 || len(r.HeldBy) > 0 {
			t.Errorf("%s: report %+v", agent, r)
		}
	}
}

// New connections get a replaced certificate; open ones continue.
func TestCertificateReplaced(t *testing.T) {
	first := certificatetest.SelfSigned(t, "first")
	second := certificatetest.SelfSigned(t, "second")
	var certs Certificates
	g := start(t, setup{Endpoints: []string{raw(t, answers)}, Certificates: []tls.Certificate{first}, Shown: &certs})
	shake := func(name string) *tls.Conn {
		c := tls.Client(dial(t, g.addr), &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c net.Conn) {
		t.Helper()
		say(t, c, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		if resp, _ := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
	shown := func(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].Subject.CommonName }
	old := shake("shop.example")
	ask(old)
	certs.Set(map[string]*tls.Certificate{"*.example": &second}, always(&first))
	if got := shown(shake("shop.example")) + shown(shake("a.shop.example")); got != "secondfirst" {
		t.Error(got)
	}
	ask(old)
	certs.Set(nil, nil)
	c := tls.Client(dial(t, g.addr), &tls.Config{ServerName: "shop.example", InsecureSkipVerify: true})
	if err := c.Handshake(); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("handshake for a name without a certificate: %v", err)
	}
	ask(old)
}

func TestMetrics(t *testing.T) {
	g := start(t, setup{})
	pool := g.NewPool("default/web/http")
	defer pool.Close()
	pool.Replace([]string{raw(t, answers)}, HTTP1, EndpointStates{Ready: 1, Terminating: 2, NotReady: 3})
	var routes Routes
	routes.Add("a", Prefix, "/", &Route{Name: "default/shop", Pool: pool})
	g.SetRoutes(&routes)
	g.Reloaded("routes", nil)
	g.Reloaded("certificates", errors.New("bad"))
	c := dial(t, g.addr)
	say(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n")
	r := bufio.NewReader(c)
	readResponse(t, r)
	readResponse(t, r)
	g.access.until(t, " 404 NR route_not_found ")
	_, body := get(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+g.admin+"/metrics")
	for _, want := range []string{
		`lastcall_gateway_requests_total{class="2xx",route="default/shop"} 1`, `lastcall_gateway_requests_total{class="4xx",route=""} 1`,
		`lastcall_gateway_endpoints{cluster="default/web/http",state="ready"} 1`, `lastcall_gateway_endpoints{cluster="default/web/http",state="terminating"} 2`,
		`lastcall_gateway_endpoints{cluster="default/web/http",state="not_ready"} 3`,
		`lastcall_gateway_reloads_total{of="routes",result="ok"} 1`, `lastcall_gateway_reloads_total{of="certificates",result="error"} 1`,
		`lastcall_gateway_connections{state=`, `lastcall_drain_phase{phase="serving"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

// The series of a cluster last as long as the last of its pools.
func TestEndpointMetricsEnd(t *testing.T) {
	g, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	series := func() int {
		w := httptest.NewRecorder()
		g.metrics.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return strings.Count(w.Body.String(), `lastcall_gateway_endpoints{cluster="default/web/http"`)
	}
	former, next := g.NewPool("default/web/http"), g.NewPool("default/web/http")
	former.Replace(nil, HTTP1, EndpointStates{Ready: 1})
	next.Replace(nil, HTTP1, EndpointStates{Ready: 2})
	former.Close()
	if n := series(); n != 3 {
		t.Errorf("%d series with a pool, want one for each state", n)
	}
	next.Close()
	if n := series(); n != 0 {
		t.Errorf("%d series without", n)
	}
}
