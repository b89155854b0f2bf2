package httpdrain

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/drain/planetest"
	"github.com/lastcall-dev/lastcall/internal/leak"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience bounds every wait of these tests; none of them comes near it.
const patience = 20 * time.Second

// scene is a Plane that serves with and without TLS.
type scene struct {
	*Plane
	plain, secure net.Addr
	roots         *x509.CertPool
	began         chan *http.Request // a /held request has come
	release       chan struct{}      // lets all of them continue
	cancelled     chan error         // why their contexts ended
	served        chan error
}

// all are the protocols that a Plane serves.
func all() *http.Protocols { return protocols(true, true) }

func protocols(http2, withoutTLS bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(http2)
	p.SetUnencryptedHTTP2(withoutTLS)
	return p
}

// everyProtocols are the ways to choose a server's protocols.
var everyProtocols = map[string]func(*http.Server){
	"default":             func(*http.Server) {},
	"HTTP/2 switched off": func(s *http.Server) { s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} },
	"HTTP/1":              func(s *http.Server) { s.Protocols = protocols(false, false) },
	"HTTP/1, HTTP/2":      func(s *http.Server) { s.Protocols = protocols(true, false) },
	"HTTP/1, without TLS": func(s *http.Server) { s.Protocols = protocols(false, true) },
	"all":                 func(s *http.Server) { s.Protocols = all() },
}

func play(t *testing.T, h http.Handler) *scene {
	t.Helper()
	s := &scene{began: make(chan *http.Request, 16), release: make(chan struct{}), cancelled: make(chan error, 16), served: make(chan error, 2)}
	if h == nil {
		h = http.HandlerFunc(s.handle)
	}
	server, config := newTLSServer()
	server.Handler, server.TLSConfig.NextProtos, server.Protocols = h, nil, all()
	s.roots = config.RootCAs
	s.Plane = New(server, Options{})
	plain, secure := loopback(t), loopback(t)
	s.plain, s.secure = plain.Addr(), secure.Addr()
	go func() { s.served <- s.Serve(plain) }()
	go func() { s.served <- s.ServeTLS(secure) }()
	for n := 0; n < 2; { // StopAccepting knows only what is served on
		runtime.Gosched()
		s.mu.Lock()
		n = s.listeners.Serving
		s.mu.Unlock()
	}
	t.Cleanup(func() {
		s.Kill()
		for range 2 {
			if err := <-s.served; err != nil {
				t.Errorf("serve: %v", err)
			}
		}
		s.lingering.Wait()
	})
	return s
}

// handle answers at once; /held waits, /begun after its head, /stubborn without regard to its context.
func (s *scene) handle(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/upgrade":
		nc, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer nc.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(nc, rw)
		return
	case "/begun":
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		fallthrough
	case "/held":
		s.began <- r
		select {
		case <-s.release:
		case <-r.Context().Done():
			s.cancelled <- context.Cause(r.Context())
			if r.URL.Path == "/begun" {
				panic(http.ErrAbortHandler) // as ReverseProxy does
			}
		}
	case "/stubborn":
		s.began <- r
		<-s.release
	}
	_, _ = io.WriteString(w, "done")
}

// h2c is HTTP/2 without TLS.
const h2c = 20

// client speaks HTTP/1.1 or 2 over TLS, or HTTP/2 without TLS.
func (s *scene) client(t *testing.T, version int) (*http.Client, string) {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}, Protocols: new(http.Protocols)}
	t.Cleanup(tr.CloseIdleConnections)
	switch version {
	case h2c:
		tr.Protocols.SetUnencryptedHTTP2(true)
		return &http.Client{Transport: tr, Timeout: patience}, "http://" + s.plain.String()
	case 2:
		tr.Protocols.SetHTTP2(true)
	default:
		tr.Protocols.SetHTTP1(true)
	}
	return &http.Client{Transport: tr, Timeout: patience}, "https://" + s.secure.String()
}

// framer is a connection of HTTP/2, with or without TLS, that has been greeted.
func (s *scene) framer(t *testing.T, secure bool, settings ...http2.Setting) *http2.Framer {
	t.Helper()
	address := s.plain
	if secure {
		address = s.secure
	}
	return framer(t, s.dial(t, address, secure, "h2"), settings...)
}

// dial connects, over TLS for the protocol.
func (s *scene) dial(t *testing.T, address net.Addr, secure bool, protocol string) net.Conn {
	t.Helper()
	return dialFor(t, address.String(), secure, &tls.Config{RootCAs: s.roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}, protocol)
}

func (a answer) String() string { return fmt.Sprintf("%v %q %v", a.Response, a.body, a.err) }

type answer struct {
	*http.Response
	body string
	err  error
}

func get(c *http.Client, url string) answer {
	resp, err := c.Get(url)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp, string(b), err}
}

func (s *scene) activity(t *testing.T) drain.Activity {
	t.Helper()
	a, err := s.Activity(t.Context())
	if err != nil || !a.Known {
		t.Fatalf("%+v %v", a, err)
	}
	return a
}

// until waits for an activity, change by change.
func (s *scene) until(t *testing.T, want func(drain.Activity) bool) {
	t.Helper()
	over := time.After(patience)
	for {
		a := s.activity(t)
		if want(a) {
			return
		}
		select {
		case <-s.Changes():
		case <-over:
			t.Fatalf("still %+v", a)
		}
	}
}

func config() drain.Config {
	c := drain.DefaultConfig()
	c.MinimumDrain, c.QuietTime, c.IdleGrace = 50*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	return c
}

func run(t *testing.T, s *scene, c drain.Config, requests *drain.Requests) drain.Report {
	r, err := drain.Termination{Plane: s.Plane, Config: c, Requests: requests, Log: slog.New(slog.DiscardHandler)}.Run(t.Context())
	if err != nil {
		t.Error(err)
	}
	return r
}

// TestRequestInFlightEnds: a request in flight delays the end, and its response ends the connection; an idle connection does
// not.
func TestRequestInFlightEnds(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2, h2c} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			t.Parallel()
			s := play(t, nil)
			client, url := s.client(t, version)
			idle, _ := s.client(t, version)
			if a := get(idle, url); a.err != nil || a.ProtoMajor != map[int]int{1: 1, 2: 2, h2c: 2}[version] {
				t.Fatalf("%v", a)
			}
			answers := make(chan answer, 1)
			go func() { answers <- get(client, url+"/held") }()
			<-s.began
			reports := make(chan drain.Report, 1)
			go func() { reports <- run(t, s, config(), nil) }()
			s.until(t, func(a drain.Activity) bool { return s.closing.Load() && a.Busy == 1 })
			if open, _ := s.Open(t.Context(), 5); len(open) != 1 || open[0].Request != "GET /held" || open[0].Protocol != map[int]string{1: "http/1.1", 2: "http/2", h2c: "http/2"}[version] {
				t.Errorf("open: %+v", open)
			}
			close(s.release)
			if a := <-answers; a.err != nil || a.body != "done" || version == 1 && !a.Close {
				t.Errorf("%v", a)
			}
			if r := <-reports; r.Verdict != drain.Clean || len(r.Faults) > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestLastCall: what has no answer gets one, what has begun is cut by a FIN, and all are named.
func TestLastCall(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2, h2c} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			t.Parallel()
			s := play(t, nil)
			client, url := s.client(t, version)
			held, begun, stubborn := make(chan answer, 1), make(chan answer, 1), make(chan answer, 1)
			go func() { held <- get(client, url+"/held") }()
			go func() { begun <- get(client, url+"/begun") }()
			go func() { stubborn <- get(client, url+"/stubborn") }()
			for range 3 {
				<-s.began
			}
			requests := new(drain.Requests)
			requests.Send(drain.Hurry) // last call now
			r := run(t, s, config(), requests)
			got := map[string]string{}
			for _, c := range r.Open {
				got[c.Request] = c.Ending
			}
			want := map[string]string{"GET /held": "503", "GET /begun": "truncated", "GET /stubborn": "503"}
			if r.Verdict != drain.Cut || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v; faults %v", r.Verdict, got, want, r.Faults)
			}
			for _, c := range []chan answer{held, stubborn} {
				// A stream of HTTP/2 ends with its handler: its client has all but the end.
				isWhole := version == 1 || c == held
				if a := <-c; isWhole && a.err != nil || a.StatusCode != http.StatusServiceUnavailable || a.body != shuttingDown {
					t.Errorf("%v", a)
				}
			}
			if a := <-begun; a.err == nil || a.body != "half" || strings.Contains(a.err.Error(), "reset by peer") {
				t.Errorf("an answer that was cut: %+v", a)
			}
			for range 2 {
				if err := <-s.cancelled; !errors.Is(err, ErrLastCall) {
					t.Errorf("a context ended by %v", err)
				}
			}
			close(s.release) // lets the stubborn handler return
		})
	}
}

// TestGRPCGetsGoAway: its transport sends it.
func TestGRPCGetsGoAway(t *testing.T) {
	s := play(t, nil)
	client, url := s.client(t, 2)
	answers := make(chan answer, 1)
	go func() {
		r, _ := http.NewRequest(http.MethodPost, url+"/held", strings.NewReader("x"))
		r.Header.Set("Content-Type", "application/grpc+proto")
		resp, err := client.Do(r)
		answers <- answer{Response: resp, err: err}
	}()
	<-s.began
	_ = s.Drain(t.Context())
	open, err := s.LastCall(t.Context(), 0)
	if err != nil || len(open) != 1 || open[0].Ending != "grpc-status 14" || open[0].Protocol != "grpc" {
		t.Errorf("%+v %v", open, err)
	}
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	defer a.Body.Close()
	if _, err := io.Copy(io.Discard, a.Body); err != nil || a.Trailer.Get("Grpc-Status") != "14" || a.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", a, err)
	}
}

// TestGoAway reads the frames: first one that refuses nothing, once, and a stream after it is served; then
// the one with the last stream.
func TestGoAway(t *testing.T) {
	t.Parallel()
	s := play(t, nil)
	f := s.framer(t, true)
	var goAways []uint32
	read := func(until func(http2.FrameHeader) bool) error {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return err
			}
			if g, ok := frame.(*http2.GoAwayFrame); ok {
				goAways = append(goAways, g.LastStreamID)
			}
			if until(frame.Header()) {
				return nil
			}
		}
	}
	answered := func(stream uint32) {
		t.Helper()
		must.Do(t, read(func(h http2.FrameHeader) bool { return h.StreamID == stream && h.Flags.Has(http2.FlagDataEndStream) }))
	}
	ask(t, f, 1, "/")
	answered(1)
	ask(t, f, 3, "/held") // it keeps the second GOAWAY from a slow client
	<-s.began
	_ = s.Drain(t.Context())
	must.Do(t, read(func(http2.FrameHeader) bool { return len(goAways) > 0 }))
	ask(t, f, 5, "/")
	answered(5)
	close(s.release)
	_ = s.CloseIdle(t.Context(), 0)
	_ = read(func(http2.FrameHeader) bool { return false }) // to the FIN
	if want := []uint32{1<<31 - 1, 5}; fmt.Sprint(goAways) != fmt.Sprint(want) {
		t.Errorf("GOAWAY named %v, want %v", goAways, want)
	}
}

// TestHTTP2WithoutARequest: a client that connects while idle connections are closed, and sends no request, is closed.
func TestHTTP2WithoutARequest(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%v", secure), func(t *testing.T) {
			t.Parallel()
			s := play(t, nil)
			_ = s.Drain(t.Context())
			_ = s.CloseIdle(t.Context(), 0)
			f := s.framer(t, secure)
			for {
				if _, err := f.ReadFrame(); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal("it is kept")
				} else if err != nil {
					break
				}
			}
			s.until(t, func(a drain.Activity) bool { return a.Connections == 0 })
		})
	}
}

// TestFirstRequestOfANewConnection is served while draining, before the GOAWAY.
func TestFirstRequestOfANewConnection(t *testing.T) {
	t.Parallel()
	s := play(t, nil)
	_ = s.Drain(t.Context())
	for _, version := range []int{1, 2, h2c} {
		client, url := s.client(t, version)
		for range 3 {
			if a := get(client, url); a.err != nil || a.body != "done" {
				t.Errorf("HTTP/%d: %v", version, a)
			}
		}
	}
	if a := s.activity(t); a.Arrivals < 12 {
		t.Errorf("%+v: six connections with a request each", a)
	}
}

// TestRequestAtCloseIdle: a request whose head is incomplete when idle connections are closed is answered, and so is one
// that net/http has not read.
func TestRequestAtCloseIdle(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		s := play(t, nil)
		address := map[bool]net.Addr{false: s.plain, true: s.secure}[secure]
		nc := s.dial(t, address, secure, "http/1.1")
		in := bufio.NewReader(nc)
		response := func(request string) (*http.Response, error) {
			send(t, nc, request)
			return http.ReadResponse(in, nil)
		}
		if resp, err := response("HEAD / HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil || resp.Close {
			t.Fatalf("%+v %v", resp, err)
		}
		must.Do(t, s.Drain(t.Context()))
		send(t, nc, "HEAD / HTTP/1.1\r\n")
		polltest.Eventually(t, "a part of the head has been read", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			for c := range s.conns {
				return c.partial.Load() > 0
			}
			return false
		})
		must.Do(t, s.CloseIdle(t.Context(), 0))
		if resp, err := response("Host: app\r\n\r\n"); err != nil || !resp.Close {
			t.Errorf("TLS %v: %+v %v", secure, resp, err)
		}
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("TLS %v: the end: %v", secure, err)
		}
	}

	ln := loopback(t)
	defer ln.Close()
	nc := dial(t, ln.Addr().String(), false, nil)
	accepted, err := ln.Accept()
	must.Do(t, err)
	p := New(&http.Server{}, Options{})
	c := connOf(p.accepted(accepted)) // without a reader
	c.hadRequest = true
	send(t, nc, "GET /")
	polltest.Eventually(t, "the bytes have arrived", func() bool { return listen.HasUnread(c.Conn) })
	must.Do(t, p.CloseIdle(t.Context(), 0))
	if a, _ := p.Activity(t.Context()); a.Connections != 1 {
		t.Error("closed with unread bytes")
	}
	p.Kill()
}

// TestHijackedIsBusy until it is closed, and ends by a FIN.
func TestHijackedIsBusy(t *testing.T) {
	s := play(t, nil)
	nc := s.dial(t, s.plain, false, "")
	fmt.Fprint(nc, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(nc)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v %v", resp, err)
	}
	_ = s.Drain(t.Context())
	_ = s.CloseIdle(t.Context(), 0)
	fmt.Fprint(nc, "still there")
	if _, err := io.ReadFull(in, make([]byte, len("still there"))); err != nil {
		t.Error(err)
	}
	if a := s.activity(t); a.Busy != 1 {
		t.Errorf("%v", a)
	}
	open, err := s.LastCall(t.Context(), 0)
	if err != nil || len(open) != 1 || open[0].Protocol != "echo" || open[0].Ending != "fin" || open[0].Request != "GET /upgrade" {
		t.Errorf("%+v %v", open, err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the end: %v, want a FIN", err)
	}
}

// TestHealthCheckIsNoArrival: to connect and to go is not to come.
func TestHealthCheckIsNoArrival(t *testing.T) {
	s := play(t, nil)
	_ = s.Drain(t.Context())
	nc := s.dial(t, s.plain, false, "")
	s.until(t, func(a drain.Activity) bool { return a.Connections == 1 })
	_ = nc.Close()
	s.until(t, func(a drain.Activity) bool { return a.Connections == 0 })
	if a := s.activity(t); a.Arrivals != 0 {
		t.Errorf("%v", a)
	}
}

// TestResume: what has been closed is open again, at the same address.
func TestResume(t *testing.T) {
	t.Parallel()
	s := play(t, nil)
	ctx := t.Context()
	must.Do(t, s.Drain(ctx))
	must.Do(t, s.CloseIdle(ctx, 0))
	must.Do(t, s.StopAccepting(ctx))
	if nc, err := net.Dial("tcp", s.plain.String()); err == nil {
		t.Error("connected to what has stopped accepting")
		_ = nc.Close()
	}
	must.Do(t, s.Resume(ctx))
	for _, version := range []int{1, 2, h2c} {
		client, url := s.client(t, version)
		for range 2 {
			if a := get(client, url); a.err != nil || a.Close {
				t.Errorf("HTTP/%d: %v", version, a)
			}
		}
	}
	if r := run(t, s, config(), nil); r.Verdict != drain.Clean {
		t.Errorf("%+v", r)
	}
}

// TestQueueIsEmptied: a client that has connected before the listener closes is served.
func TestQueueIsEmptied(t *testing.T) {
	t.Parallel()
	s := play(t, nil)
	_ = s.Drain(t.Context())
	for range 20 {
		var all []net.Conn
		for range 10 {
			all = append(all, s.dial(t, s.plain, false, ""))
		}
		must.Do(t, s.StopAccepting(t.Context()))
		for _, nc := range all {
			fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			must.Do(t, err)
			_ = resp.Body.Close()
			_ = nc.Close()
		}
		must.Do(t, s.Resume(t.Context()))
		_ = s.Drain(t.Context())
	}
}

// TestTrailersAndInterimAnswers pass the last call's wrapping.
func TestTrailersAndInterimAnswers(t *testing.T) {
	var s *scene
	s = play(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header().Set("Trailer", "Declared")
		_, _ = io.WriteString(w, "body")
		if r.Host == s.plain.String() != (r.TLS == nil) || r.TLS != nil && r.TLS.Version < tls.VersionTLS12 || r.Context().Value(http.LocalAddrContextKey) == nil {
			t.Errorf("%s: %+v", r.Proto, r.TLS)
		}
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("Declared", "one")
		w.Header().Set(http.TrailerPrefix+"Late", "two")
		w.Header().Set("Neither", "three")
	}))
	for _, version := range []int{1, 2, h2c} {
		client, url := s.client(t, version)
		a := get(client, url)
		if a.err != nil || a.body != "body" || a.Header.Get("Link") != "" || a.Trailer.Get("Declared") != "one" || a.Trailer.Get("Late") != "two" || a.Header.Get("Neither")+a.Trailer.Get("Neither") != "" {
			t.Errorf("HTTP/%d: %+v %v", version, a, a.Response)
		}
	}
}

// No client, whenever it connects, delays the end to the last call.
func TestClients(t *testing.T) {
	t.Parallel()
	for name, choose := range everyProtocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planetest.Clients(t, func(t *testing.T, _ int) (drain.DataPlane, func() (net.Conn, error)) {
				server := &http.Server{
					ReadHeaderTimeout: 300 * time.Millisecond, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
					Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						time.Sleep(rand.N(20 * time.Millisecond))
						_, _ = io.WriteString(w, "done")
					}),
				}
				choose(server)
				p, ln := New(server, Options{}), loopback(t)
				served := make(chan error, 1)
				go func() { served <- p.Serve(ln) }()
				t.Cleanup(p.lingering.Wait)
				return closing{p, served}, func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
			})
		})
	}
}

// closing is a Plane whose Close includes the return of Serve: nothing but Close has ended it.
type closing struct {
	*Plane
	served <-chan error
}

func (c closing) Close(ctx context.Context) error {
	if err := c.Plane.Close(ctx); err != nil {
		return err
	}
	select {
	case err := <-c.served:
		return err
	case <-ctx.Done():
		return errors.New("Serve has not returned after Close")
	}
}
