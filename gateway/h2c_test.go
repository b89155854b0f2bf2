package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/drain"
)

// h2cApp is an endpoint of HTTP/2 without TLS. It counts its connections, and those that have ended.
func h2cApp(t *testing.T, streams int, h http.HandlerFunc) (addr string, begun, ended *atomic.Int32) {
	t.Helper()
	begun, ended = new(atomic.Int32), new(atomic.Int32)
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	s.Listener = &counting{s.Listener, begun, ended}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), begun, ended
}

type counting struct {
	net.Listener
	begun, ended *atomic.Int32
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.begun.Add(1)
	return &counted{Conn: c, ended: l.ended}, nil
}

type counted struct {
	net.Conn
	once  sync.Once
	ended *atomic.Int32
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		c.once.Do(func() { c.ended.Add(1) })
	}
	return n, err
}

// h2cRaw is an endpoint of which the test writes every frame: answer is called when a request
// has come whole.
func h2cRaw(t *testing.T, answer func(conn int, c net.Conn, f *http2.Framer, id uint32, body string)) string {
	return raw(t, func(n int, c net.Conn, r *bufio.Reader) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(r, preface); err != nil {
			return
		}
		f := http2.NewFramer(c, r)
		_ = f.WriteSettings()
		body := map[uint32]string{}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			ended := false
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				ended = frame.StreamEnded()
			case *http2.DataFrame:
				id := frame.Header().StreamID
				body[id] += string(frame.Data())
				if n := uint32(len(frame.Data())); n > 0 {
					_ = f.WriteWindowUpdate(0, n)
					_ = f.WriteWindowUpdate(id, n)
				}
				ended = frame.StreamEnded()
			}
			if ended {
				answer(n, c, f, frame.Header().StreamID, body[frame.Header().StreamID])
			}
		}
	})
}

func answerOK(f *http2.Framer, id uint32, body string) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}, EndHeaders: true}) // :status 200
	_ = f.WriteData(id, true, []byte(body))
}

// h2cClient speaks HTTP/2 without TLS to the gateway.
func (r *running) h2cClient(t *testing.T) (*http.Client, string) {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}, "http://" + r.addr
}

// Every protocol of a client's goes to endpoints of HTTP/2, many requests over one connection.
func TestH2C(t *testing.T) {
	addr, begun, _ := h2cApp(t, 250, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Trailer", "Sum")
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Proto, r.Host, r.Header.Get("X-Forwarded-Proto"), body)
		w.Header().Set("Sum", fmt.Sprint(len(body), r.Trailer.Get("Size")))
	})
	for _, tt := range []struct {
		name   string
		secure bool
		client func(*running) (*http.Client, string)
	}{
		{"HTTP/1.1", false, func(g *running) (*http.Client, string) { return g.client(t, false) }},
		{"HTTP/2 without TLS", false, func(g *running) (*http.Client, string) { return g.h2cClient(t) }},
		{"HTTP/2 over TLS", true, func(g *running) (*http.Client, string) { return g.client(t, true) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := setup{Endpoints: []string{addr}, Protocol: H2C}
			scheme := "http"
			if tt.secure {
				o.Certificates, scheme = selfSigned(t), "https"
			}
			g := start(t, o)
			begun.Store(0)
			c, url := tt.client(g)
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					body := strings.Repeat("x", i*1000)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/a", io.MultiReader(strings.NewReader(body)))
					if err != nil {
						t.Error(err)
						return
					}
					req.Host, req.Trailer = "shop.example", http.Header{"Size": {"!"}}
					resp, err := c.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					got, err := io.ReadAll(resp.Body)
					want := "HTTP/2.0 shop.example " + scheme + " " + body
					if string(got) != want || err != nil || resp.Trailer.Get("Sum") != fmt.Sprint(len(body), "!") {
						t.Errorf("%v: %.60q, want %.60q; trailer %v", err, got, want, resp.Trailer)
					}
				})
			}
			all.Wait()
			if n := begun.Load(); n != 1 {
				t.Errorf("%d connections to the endpoint, want 1", n)
			}
		})
	}
}

// Beyond the streams that an endpoint allows on a connection there is another one.
func TestH2CMoreConnections(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 8)
	addr, begun, _ := h2cApp(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C})
	c, url := g.client(t, false)
	var all sync.WaitGroup
	defer all.Wait()
	for range 8 {
		all.Go(func() {
			if resp, _ := get(t, c, url); resp.StatusCode != 200 {
				t.Error(resp.Status)
			}
		})
	}
	for range 8 {
		within(t, "request", arrived)
	}
	close(release)
	all.Wait()
	if n := begun.Load(); n < 4 || n > 8 {
		t.Errorf("%d connections for 8 requests of 2 a connection", n)
	}
}

// An endpoint that is drained takes one request on a connection: each of many gets its own.
func TestH2COneRequestAConnection(t *testing.T) {
	var conns atomic.Int32
	addr := h2cRaw(t, func(_ int, _ net.Conn, f *http2.Framer, id uint32, _ string) {
		if id == 1 {
			conns.Add(1)
			_ = f.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
		}
		answerOK(f, id, "one")
	})
	g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C})
	c, url := g.client(t, false)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 50 {
				if resp, body := get(t, c, url); resp.StatusCode != 200 || body != "one" {
					t.Errorf("%s %q", resp.Status, body)
				}
			}
		})
	}
	all.Wait()
	if n := conns.Load(); n < 50 {
		t.Errorf("%d connections for 1,000 requests, 20 at a time", n)
	}
}

// A connection on which no stream is allowed is no connection: there would be another, and another.
func TestH2CNoStream(t *testing.T) {
	var conns atomic.Int32
	addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		conns.Add(1)
		_ = http2.NewFramer(c, r).WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		_, _ = io.Copy(io.Discard, r)
	})
	g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C, MaxAttempts: 2})
	c, url := g.client(t, false)
	if resp, body := get(t, c, url); resp.StatusCode != 503 || conns.Load() != 2 {
		t.Errorf("%s %q after %d connections", resp.Status, body, conns.Load())
	}
}

// What an endpoint has not looked at is sent to another; what it may have is not.
func TestH2CRepeats(t *testing.T) {
	const whole = 200 << 10 // a body that is not kept
	for _, tt := range []struct {
		name  string
		first func(c net.Conn, f *http2.Framer, id uint32)
		size  int
		want  string
	}{
		{"refused", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, 1000, "200 again -"},
		{"beyond the last stream", func(_ net.Conn, f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }, 1000, "200 again -"},
		{"refused, and too large to be kept", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, whole, "503 UR upstream_reset_before_response_started{remote_refused_stream_reset}"},
		{"reset", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeInternal) }, 1000, "503 UR upstream_reset_before_response_started{remote_reset}"},
		{"reset as an error of protocol", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeProtocol) }, 0, "503 UR upstream_reset_before_response_started{remote_reset}"},
		{"closed", func(c net.Conn, _ *http2.Framer, _ uint32) { _ = c.Close() }, 0, "503 UC upstream_reset_before_response_started{connection_termination}"},
		{"closed after a GOAWAY that includes it", func(c net.Conn, f *http2.Framer, id uint32) {
			_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = c.Close()
		}, 0, "503 UC upstream_reset_before_response_started{connection_termination}"},
		{"no HTTP/2", func(c net.Conn, _ *http2.Framer, _ uint32) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}, 0, "502 UPE upstream_reset_before_response_started{protocol_error}"},
		{"a frame that is none", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRawFrame(http2.FrameData, 0, 0, nil) }, 0, "502 UPE upstream_reset_before_response_started{protocol_error}"},
		{"a head without a status", func(_ net.Conn, f *http2.Framer, id uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x84}, EndHeaders: true, EndStream: true}) // :path
		}, 0, "502 UPE upstream_reset_before_response_started{protocol_error}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked atomic.Int32
			answer := func(_ int, c net.Conn, f *http2.Framer, id uint32, body string) {
				if asked.Add(1) == 1 {
					tt.first(c, f, id)
					return
				}
				if len(body) != tt.size {
					t.Errorf("%d bytes came the second time, want %d", len(body), tt.size)
				}
				answerOK(f, id, "again")
			}
			g := start(t, setup{Endpoints: []string{h2cRaw(t, answer), h2cRaw(t, answer)}, Protocol: H2C})
			c, url := g.client(t, false)
			method := http.MethodGet
			var body io.Reader
			if tt.size > 0 {
				method, body = http.MethodPost, iotest.HalfReader(io.MultiReader(strings.NewReader(strings.Repeat("x", tt.size))))
			}
			req, err := http.NewRequestWithContext(t.Context(), method, url, body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			status, rest, _ := strings.Cut(tt.want, " ")
			if rest, ok := strings.CutPrefix(rest, "again "); ok {
				if string(text) != "again" || asked.Load() != 2 {
					t.Errorf("%s %q, asked %d times", resp.Status, text, asked.Load())
				}
				g.access.until(t, " "+status+" "+rest+" ")
				return
			}
			if fmt.Sprint(resp.StatusCode) != status || asked.Load() != 1 && tt.size != whole {
				t.Errorf("%s %q, asked %d times; want %s", resp.Status, text, asked.Load(), tt.want)
			}
			g.access.until(t, " "+tt.want+" ")
		})
	}
}

// A response that its endpoint breaks off is broken off for the client.
func TestH2CBreakInTheBody(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(c net.Conn, f *http2.Framer, id uint32)
		want string
	}{
		{"reset", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) }, " 200 UR upstream_reset_after_response_started{remote_reset} "},
		{"closed", func(c net.Conn, _ *http2.Framer, _ uint32) { _ = c.Close() }, " 200 UC upstream_reset_after_response_started{connection_termination} "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := start(t, setup{Protocol: H2C, Endpoints: []string{h2cRaw(t, func(_ int, c net.Conn, f *http2.Framer, id uint32, _ string) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}, EndHeaders: true})
				_ = f.WriteData(id, false, []byte("half"))
				tt.end(c, f, id)
			})}})
			c, url := g.h2cClient(t)
			resp, err := c.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); string(text) != "half" || err == nil {
				t.Errorf("%q %v", text, err)
			}
			g.access.until(t, tt.want)
		})
	}
}

// A removed endpoint keeps its requests in flight, and its connection ends after the last.
func TestH2CRemovedEndpoint(t *testing.T) {
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	addr, _, ended := h2cApp(t, 250, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C})
	c, url := g.client(t, false)
	got := make(chan string, 1)
	go func() {
		resp, err := c.Get(url)
		if err != nil {
			got <- err.Error()
			return
		}
		_ = resp.Body.Close()
		got <- resp.Status
	}()
	within(t, "request", arrived)
	if err := g.pool.Set(nil, H2C); err != nil {
		t.Fatal(err)
	}
	close(release)
	if got := within(t, "response", got); got != "200 OK" {
		t.Error(got)
	}
	for deadline := time.Now().Add(patience); ended.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection is kept")
		}
	}
	if resp, _ := get(t, c, url); resp.StatusCode != 503 {
		t.Error(resp.Status)
	}
	// Another protocol at the same address is another endpoint.
	if err := g.pool.Set([]string{addr}, HTTP1); err != nil {
		t.Fatal(err)
	}
	if resp, _ := get(t, c, url); resp.StatusCode != 503 {
		t.Error(resp.Status)
	}
}

// An endpoint that does not speak HTTP/2 counts as a failed connection, and gets no request.
func TestNoH2C(t *testing.T) {
	for _, tt := range []struct {
		name  string
		serve func(c net.Conn, r *bufio.Reader)
	}{
		{"HTTP/1.1", func(c net.Conn, r *bufio.Reader) {
			if _, err := r.ReadString('\n'); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
				_, _ = io.Copy(io.Discard, r)
			}
		}},
		{"nothing", func(net.Conn, *bufio.Reader) {}},
		{"no SETTINGS", func(c net.Conn, r *bufio.Reader) {
			_ = http2.NewFramer(c, r).WritePing(false, [8]byte{})
			_, _ = io.Copy(io.Discard, r)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				all := new(strings.Builder)
				tt.serve(c, bufio.NewReader(io.TeeReader(r, all)))
				if strings.Contains(all.String(), "shop") {
					t.Errorf("a request came: %q", all)
				}
			})
			g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C, MaxAttempts: 1})
			c, url := g.client(t, false)
			resp, body := get(t, c, url+"/shop")
			if resp.StatusCode != 503 || !strings.HasSuffix(body, "remote connection failure") {
				t.Errorf("%s %q", resp.Status, body)
			}
			g.access.until(t, " 503 UF upstream_reset_before_response_started{remote_connection_failure} ")
		})
	}
}

// At the last call a gRPC response ends with a status in between two messages, and is broken off
// within one.
func TestGRPCLastCall(t *testing.T) {
	for _, tt := range []struct {
		name, sent     string
		status, ending string
	}{
		{"between messages", "\x00\x00\x00\x00\x02hi", "14", "grpc-status 14"},
		{"within a message", "\x00\x00\x00\x00\x02hi\x00\x00\x00\x00\x02h", "", "truncated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gone := make(chan struct{}, 1)
			addr, _, _ := h2cApp(t, 250, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/grpc+proto")
				w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
				_, _ = io.WriteString(w, tt.sent)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				gone <- struct{}{}
			})
			g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C})
			c, url := g.h2cClient(t)
			body, more := io.Pipe()
			defer more.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/shop.Cart/Watch", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/grpc+proto")
			req.Header.Set("Te", "trailers")
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, len(tt.sent))
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Fatal(err)
			}
			g.signals <- drain.Terminate
			g.signals <- drain.Terminate
			rest, err := io.ReadAll(resp.Body)
			if (err == nil) != (tt.status != "") || len(rest) > 0 || resp.Trailer.Get("Grpc-Status") != tt.status {
				t.Errorf("%q %v, trailer %v", rest, err, resp.Trailer)
			}
			r := g.ended(t)
			if len(r.Open) != 1 || r.Open[0].Ending != tt.ending || r.Open[0].Protocol != "grpc" {
				t.Errorf("%+v", r.Open)
			}
			within(t, "end at the endpoint", gone)
			g.access.until(t, " 200 DT last_call ")
		})
	}
}

// Where messages end does not depend on the pieces that they come in.
func TestMessages(t *testing.T) {
	for range 200 {
		var all []byte
		ends := map[int]bool{0: true}
		for range 1 + rand.IntN(5) {
			n := []int{0, 1, 5, 300}[rand.IntN(4)]
			all = append(all, 0, 0, 0, byte(n>>8), byte(n))
			all = append(all, bytes.Repeat([]byte{7}, n)...)
			ends[len(all)] = true
		}
		m, at := new(messages), 0
		for at < len(all) {
			n := 1 + rand.IntN(min(20, len(all)-at))
			if !m.pass(all[at : at+n]) {
				t.Fatal("it has ended")
			}
			at += n
			if between := !m.at.Within(); between != ends[at] {
				t.Fatalf("between two messages at byte %d: %v; % x", at, between, all)
			}
		}
		if !m.end() || m.pass([]byte{0}) {
			t.Fatal("bytes pass after the end")
		}
	}
}

// The upgrade to HTTP/2 is not offered to an endpoint: the gateway could not check the requests after it.
func TestUpgradeToHTTP2IsNotPassedOn(t *testing.T) {
	g := start(t, setup{Endpoints: []string{raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Header.Get("Upgrade")+req.Header.Get("Connection")+req.Header.Get("Http2-Settings") != "" {
			t.Errorf("%v", req.Header)
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})}})
	c := dial(t, g.addr)
	say(t, c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
	if resp, body := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 200 || body != "ok" {
		t.Errorf("%v %q", resp.Status, body)
	}
}

// A body is lent to one attempt after the other, and the next one waits for what the last one is
// reading.
func TestReplay(t *testing.T) {
	body, more := io.Pipe()
	r := newReplay(body, true)
	first := r.attempt()
	go func() { _, _ = io.WriteString(more, "one ") }()
	p := make([]byte, 100)
	if n, err := first.Read(p); string(p[:n]) != "one " || err != nil {
		t.Fatalf("%q %v", p[:n], err)
	}
	late := make(chan string)
	go func() {
		q := make([]byte, 100)
		n, _ := first.Read(q)
		late <- string(q[:n])
	}()
	for r.mu.TryLock() { // until it is in its read
		r.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	if first.taken() {
		t.Fatal("a body that is kept has been taken")
	}
	second := r.attempt()
	got := make(chan string)
	go func() {
		all, err := io.ReadAll(second)
		got <- fmt.Sprint(string(all), " ", err)
	}()
	_, _ = io.WriteString(more, "two")
	_ = more.Close()
	if text := within(t, "late read", late); text != "two" {
		t.Errorf("%q", text)
	}
	if text := within(t, "second attempt", got); text != "one two <nil>" {
		t.Errorf("%q", text)
	}
	if n, err := first.Read(p); n != 0 || !errors.Is(err, errBodyClosed) {
		t.Errorf("%d %v after the attempt", n, err)
	}
	large := newReplay(io.NopCloser(strings.NewReader(strings.Repeat("x", mostKept+1))), true)
	once := large.attempt()
	if n, err := io.Copy(io.Discard, once); n != mostKept+1 || err != nil || !once.taken() || len(large.kept) > 0 {
		t.Errorf("%d %v, kept %d", n, err, len(large.kept))
	}
}

// A WebSocket uses HTTP/1.1 to an endpoint with HTTP/2: a pod with lastcall's pipe serves both.
func TestWebSocketToH2CEndpoint(t *testing.T) {
	addr, _ := echo(t)
	g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+g.addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := c.Read(ctx); string(b) != "hello" || err != nil {
		t.Errorf("%q %v", b, err)
	}
}
