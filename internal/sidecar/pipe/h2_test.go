package pipe

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

func h2Client(t *testing.T) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func TestH2(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Long", strings.Repeat("v", 20000)) // CONTINUATION
		w.Header().Set("Trailer", "T")
		fmt.Fprintf(w, "%s %d %d", r.Proto, len(b), len(r.Header.Get("X-Long")))
		w.Header().Set("T", "end")
	})
	for _, protocol := range []Protocol{Auto, HTTP} {
		t.Run(protocol.String(), func(t *testing.T) {
			p := startPipe(t, app, protocol)
			c := h2Client(t)
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					req, _ := http.NewRequest("POST", "http://"+p.Addr(0).String()+"/", strings.NewReader(strings.Repeat("x", i*2000)))
					req.Header.Set("X-Long", strings.Repeat("h", 30000))
					resp, err := c.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					b, err := io.ReadAll(resp.Body)
					if want := fmt.Sprintf("HTTP/2.0 %d 30000", i*2000); err != nil || string(b) != want || resp.Trailer.Get("T") != "end" {
						t.Errorf("%q, %v, trailer %v; want %q", b, err, resp.Trailer, want)
					}
				})
			}
			all.Wait()
			polltest.Eventually(t, "no request is open", func() bool { return p.busy.Load() == 0 })
			if s := p.Stats(); s.Requests != 50 || s.Responses[2] != 50 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestH2Drain(t *testing.T) {
	t.Parallel()
	g := startGate(t)
	p, r := startRaw(t, g, HTTP)
	r.request(1, true, ":path", "/a")
	<-g.requests
	awaitActivity(t, p, 1, 1)
	_ = p.Drain(ctx)
	r.request(3, true, ":path", "/late") // had not seen the GOAWAY yet
	<-g.requests
	if open, _ := p.Open(ctx, 10); len(open) != 2 || open[0].Request != "POST /a" || open[1].Request != "POST /late" || open[0].Protocol != "http/2" {
		t.Errorf("open: %v", open)
	}
	g.open()
	got := r.wantAmong("GOAWAY 2147483647 NO_ERROR", "HEADERS 1 end=false :status=200", "HEADERS 3 end=false :status=200", `DATA 1 "done"`, `DATA 3 "done"`)
	if !strings.HasSuffix(got, "GOAWAY 3 NO_ERROR") {
		t.Errorf("the last frame is not the final GOAWAY:\n%s", got)
	}
	awaitActivity(t, p, 0, 0)
	closePipe(t, p)
}

func TestH2IdleAtTheEnd(t *testing.T) {
	p, r := startRaw(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP)
	r.request(1, true, ":path", "/")
	awaitRequests(t, p, 1)
	awaitActivity(t, p, 1, 0)
	_ = p.Drain(ctx)
	polltest.Eventually(t, "a GOAWAY", func() bool { return p.Stats().H2.GoAways > 0 })
	_ = p.CloseIdle(ctx, 0)
	got := r.frames()
	if len(got) < 2 || got[len(got)-2] != "GOAWAY 2147483647 NO_ERROR" || got[len(got)-1] != "GOAWAY 1 NO_ERROR" {
		t.Errorf("got %q", got)
	}
}

func awaitRequests(t *testing.T, p *Pipe, n uint64) {
	t.Helper()
	polltest.Eventually(t, "the requests come", func() bool { return p.Stats().Requests >= n })
}

// The last call ends each stream by its own rules.
func TestH2LastCall(t *testing.T) {
	requests := make(chan string, 10)
	free := make(chan struct{})
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" || r.URL.Path == "/grpc.begun" {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
		}
		requests <- r.URL.Path
		<-free
	})
	t.Cleanup(func() { close(free) })
	p, r := startRaw(t, app, Auto)
	r.request(1, true, ":path", "/waiting")
	r.request(3, false, ":path", "/upload")
	r.request(5, true, ":path", "/begun")
	r.request(7, false, ":path", "/grpc.waiting", "content-type", "application/grpc")
	r.request(9, false, ":path", "/grpc.begun", "content-type", "application/grpc+proto")
	r.request(11, true, ":path", "/probe", "user-agent", "kube-probe/1.34")
	for range 6 {
		<-requests
	}
	polltest.Eventually(t, "the answers begin", func() bool { return p.Stats().Responses[2] >= 2 })
	awaitActivity(t, p, 1, 1)
	_ = p.Drain(ctx)
	left, err := p.LastCall(ctx, 0)
	must.Do(t, err)
	var endings []string
	for _, c := range left {
		endings = append(endings, c.Protocol+" "+c.Request+": "+c.Ending)
	}
	want := []string{"http/2 POST /waiting: 503", "http/2 POST /upload: 503", "http/2 POST /begun: reset",
		"grpc POST /grpc.waiting: grpc-status 14", "grpc POST /grpc.begun: grpc-status 14"}
	if strings.Join(endings, "\n") != strings.Join(want, "\n") {
		t.Errorf("ended\n  %s\nwant\n  %s", strings.Join(endings, "\n  "), strings.Join(want, "\n  "))
	}
	r.wantAmong(
		"HEADERS 1 end=true :status=503",
		"HEADERS 3 end=true :status=503\nRST 3 NO_ERROR",
		"RST 5 INTERNAL_ERROR",
		"HEADERS 7 end=true :status=200 grpc-status=14 grpc-message=the server is shutting down",
		"HEADERS 9 end=true grpc-status=14 grpc-message=the server is shutting down",
		"HEADERS 11 end=true :status=503",
		"GOAWAY 11 NO_ERROR",
	)
}

func TestH2AppRefuses(t *testing.T) {
	p, r := startRaw(t, refused(t), HTTP)
	r.request(1, true, ":path", "/")
	r.want("HEADERS 1 end=true :status=503", "GOAWAY 1 NO_ERROR")
	awaitActivity(t, p, 0, 0)
	r = dialRaw(t, p)
	r.request(1, true, ":path", "/", "content-type", "application/grpc")
	r.want("HEADERS 1 end=true :status=200 grpc-status=14 grpc-message=upstream connect error or disconnect/reset "+
		"before headers. reset reason: remote connection failure", "GOAWAY 1 NO_ERROR")
	awaitActivity(t, p, 0, 0)
}

// The end of the app's connection reaches the client as it was, behind the app's frames: a response of ours would forbid the
// client to repeat a request that the app's GOAWAY has not named.
func TestH2AppEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		goAway, resets bool
		want           string
	}{
		"FIN":            {want: ""},
		"GOAWAY and FIN": {goAway: true, want: "GOAWAY 0 NO_ERROR"},
		"RST":            {resets: true, want: "connection reset by peer"},
	} {
		t.Run(name, func(t *testing.T) {
			app := startApp(t, func(c net.Conn) {
				f := readPreface(c)
				nextRequest(f)
				if tt.goAway {
					_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
				}
				if tt.resets {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			})
			p, r := startRaw(t, app, HTTP)
			r.request(1, true, ":path", "/", "content-type", "application/grpc")
			if got := strings.Join(r.frames(), "\n"); strings.Contains(got, "HEADERS") || !strings.HasSuffix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			awaitActivity(t, p, 0, 0)
			if failed := p.failed.Load(); failed != 1 && !tt.goAway {
				t.Errorf("%d failed requests", failed)
			}
		})
	}
}

func TestH2BrokenClient(t *testing.T) {
	app := startHTTP(t, func(http.ResponseWriter, *http.Request) {})
	for _, tt := range []struct {
		name string
		send string
		code string
	}{
		{"DATA on stream 0", "\x00\x00\x00\x00\x00\x00\x00\x00\x00", "PROTOCOL_ERROR"},
		{"CONTINUATION alone", "\x00\x00\x00\x09\x04\x00\x00\x00\x01", "PROTOCOL_ERROR"},
		{"RST_STREAM of 3 bytes", "\x00\x00\x03\x03\x00\x00\x00\x00\x01abc", "FRAME_SIZE_ERROR"},
		{"SETTINGS of 5 bytes", "\x00\x00\x05\x04\x00\x00\x00\x00\x00abcde", "FRAME_SIZE_ERROR"},
		{"header block that is none", "\x00\x00\x01\x01\x05\x00\x00\x00\x01\xff", "COMPRESSION_ERROR"},
		{"padding beyond the end", "\x00\x00\x02\x01\x0c\x00\x00\x00\x01\x09x", "PROTOCOL_ERROR"},
		{"PUSH_PROMISE of a client", "\x00\x00\x05\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02\x82", "PROTOCOL_ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, r := startRaw(t, app, HTTP)
			r.send(tt.send)
			got := r.frames()
			if !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "GOAWAY") && strings.HasSuffix(f, tt.code) }) {
				t.Errorf("got %q; want a GOAWAY with %s", got, tt.code)
			}
			_ = r.Close()
			awaitActivity(t, p, 0, 0)
		})
	}
}

// An app that sends its SETTINGS before the client has sent a byte, as gRPC's C
// core does, is understood too.
func TestH2ServerSpeaksFirst(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		_ = http2.NewFramer(c, nil).WriteSettings()
		f := readPreface(c)
		for id := nextRequest(f); id > 0; id = nextRequest(f) {
			respond(f, id, true, ":status", "200")
		}
	})
	p, c := startClient(t, app, Auto)
	if _, err := c.r.Peek(9); err != nil { // before we have sent anything
		t.Fatal(err)
	}
	r := c.raw()
	r.request(1, true, ":path", "/")
	awaitRequests(t, p, 1)
	awaitActivity(t, p, 1, 0)
	_ = p.CloseIdle(ctx, 0)
	if got := r.frames(); got[0] != "HEADERS 1 end=true :status=200" || got[len(got)-1] != "GOAWAY 1 NO_ERROR" {
		t.Errorf("got %q", got)
	}
}

// A client of HTTP/2 that connects while idle connections are closed has a moment to send a request, as with HTTP/1.1; it
// does not stay without a request.
func TestH2ConnectionWithoutARequest(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{HTTP, Auto} {
		app := startHTTP(t, func(w http.ResponseWriter, _ *http.Request) {})
		p := startPipe(t, app, protocol)
		_ = p.Drain(ctx)
		_ = p.CloseIdle(ctx, 0)
		r := dialRaw(t, p)
		if got := strings.Join(r.frames(), "\n"); !strings.HasSuffix(got, "GOAWAY 0 NO_ERROR") {
			t.Errorf("%v: got %s", protocol, got)
		}
		awaitActivity(t, p, 0, 0)
	}
}
