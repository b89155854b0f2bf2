package pipe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// grpcMessage is one of gRPC's, with a content of n bytes.
func grpcMessage(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

// At the last call a gRPC stream is cut in between two messages: the one that is
// in flight goes through, nothing follows it.
func TestH2LastMessages(t *testing.T) {
	t.Parallel()
	type step func(*http2.Framer)
	begin := func(id uint32) step { return func(f *http2.Framer) { respond(f, id, false, ":status", "200") } }
	trailers := func(id uint32) step { return func(f *http2.Framer) { respond(f, id, true, "x", "y") } }
	data := func(id uint32, b []byte) step { return func(f *http2.Framer) { _ = f.WriteData(id, false, b) } }
	ping := func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) }
	reset := func(f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeInternal) }
	unavailable := func(id uint32) string {
		return fmt.Sprintf("HEADERS %d end=true grpc-status=14 grpc-message=the server is shutting down", id)
	}
	const unanswered = "HEADERS 3 end=true :status=200 grpc-status=14 grpc-message=the server is shutting down"
	half := grpcMessage(10)
	one := []step{begin(1), data(1, half[:3])}
	two := []step{begin(1), begin(3), data(1, half[:3]), data(3, half)}
	for _, tt := range []struct {
		name          string
		before, after []step // the last call
		want          []string
		endings       []string
	}{
		{"the rest of a message, nothing after it", []step{begin(1), data(1, half[:8])},
			[]step{ping, data(1, half[8:]), data(1, grpcMessage(3))},
			[]string{"DATA 1 7 bytes", unavailable(1), unanswered, "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
		{"others wait without a word", two,
			[]step{data(3, grpcMessage(5)), trailers(3), data(1, half[3:])},
			[]string{"DATA 1 12 bytes", unavailable(1), unavailable(3), "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
		{"one that ends by itself", two,
			[]step{trailers(3), data(1, half[3:])},
			[]string{"HEADERS 3 end=true ", "DATA 1 12 bytes", unavailable(1), "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14"}},
		{"a stream that the app resets", one, []step{reset},
			[]string{"RST 1 INTERNAL_ERROR", unanswered, "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14"}},
		{"no end in time", one, nil,
			[]string{unavailable(1), unanswered, "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			called := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				f := serveFrames(c)
				nextRequest(f)
				nextRequest(f)
				for _, write := range tt.before {
					write(f)
				}
				<-called
				for _, write := range tt.after {
					write(f)
				}
				_, _ = io.Copy(io.Discard, c)
			})
			p, r := startRaw(t, app, HTTP)
			r.request(1, true, ":path", "/a", "content-type", "application/grpc")
			r.request(3, true, ":path", "/b", "content-type", "application/grpc")
			r.until(func(f http2.Frame) bool { // the frames before it have arrived
				if h, ok := f.(*http2.HeadersFrame); ok {
					_, _ = r.dec.DecodeFull(h.HeaderBlockFragment())
				}
				d, ok := f.(*http2.DataFrame)
				return ok && (d.StreamID == 3 || !strings.Contains(tt.name, "wait") && !strings.Contains(tt.name, "itself"))
			})
			report := lastCall(t, p, time.Second)
			awaitFinishing(t, p)
			close(called)
			var got []string
			for _, f := range r.frames() {
				if f == "GOAWAY 2147483647 NO_ERROR" {
					continue // a frame of the app's first ones may pass after the last call has begun, and bring it
				}
				if strings.HasPrefix(f, "DATA") {
					var id, n int
					_, _ = fmt.Sscanf(f, "DATA %d", &id)
					n = strings.Count(f, `\x00`) + strings.Count(f, `\n`)
					f = fmt.Sprintf("DATA %d %d bytes", id, n)
				}
				got = append(got, f)
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
			}
			wantEndings(t, report(), tt.endings...)
		})
	}
}

// A client that is cut within a frame, because it reads slowly or not at
// all, gets no frame of ours in its middle.
func TestH2LastCallOfAClientThatDoesNotRead(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		f := serveFrames(c)
		respond(f, 1, false, ":status", "200")
		for f.WriteData(1, false, bytes.Repeat([]byte{0xff}, 16000)) == nil {
		}
	})
	p, r := startRaw(t, app, HTTP)
	r.request(1, true, ":path", "/")
	awaitActivity(t, p, 1, 1)
	for last := -1; ; time.Sleep(50 * time.Millisecond) { // until nothing moves
		now := p.all()[0].client.Unsent()
		if now == last && now > 0 {
			break
		}
		last = now
	}
	if _, err := p.LastCall(ctx, 0); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := r.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			return
		}
		if d, ok := f.(*http2.DataFrame); ok && !bytes.Equal(d.Data(), bytes.Repeat([]byte{0xff}, 16000)) {
			t.Fatalf("a frame holds something else: %x", d.Data()[:20])
		}
	}
}

// What the code of a user sees when the last call ends its request.
func TestH2LastCallAsClientsSeeIt(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	get := func(path string) func(string, *http.Client) string {
		return func(url string, c *http.Client) string {
			resp, err := c.Get(url + path)
			return tell(resp, err)
		}
	}
	for _, tt := range []struct {
		name   string
		ask    func(url string, c *http.Client) string
		ending string // in the report
		says   string // of what the client says
	}{
		{"net/http, waiting", get("/wait"), "503", `503 ""`},
		{"net/http, within a body", get("/begun"), "reset", `stream error: stream ID 1; INTERNAL_ERROR; received from peer`},
		{"net/http, uploading", func(url string, c *http.Client) string {
			r, w := io.Pipe()
			defer w.Close()
			go func() { _, _ = w.Write(make([]byte, 1000)) }()
			resp, err := c.Post(url+"/wait", "text/plain", r)
			return tell(resp, err)
		}, "503", `503 ""`},
		{"curl, waiting", func(url string, _ *http.Client) string {
			return shell(t, "curl", "--http2-prior-knowledge", "-sS", "-w", "%{http_code}", url+"/wait")
		}, "503", "503, and is content"},
		{"curl, within a body", func(url string, _ *http.Client) string {
			return shell(t, "curl", "--http2-prior-knowledge", "-sS", url+"/begun")
		}, "reset", ", and fails"},
		{"nghttp, waiting", func(url string, _ *http.Client) string {
			return shell(t, "nghttp", "-v", "--no-verify-peer", url+"/wait")
		}, "503", ":status: 503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPipe(t, app, HTTP)
			output := make(chan string, 1)
			go func() { output <- tt.ask("http://"+p.Addr(0).String(), h2Client(t)) }()
			awaitRequests(t, p, 1)
			awaitActivity(t, p, 1, 1)
			if tt.ending == "reset" { // the client has its head
				polltest.Eventually(t, "a response", func() bool { return p.Stats().Responses[2] > 0 })
			}
			_ = p.Drain(ctx)
			left, err := p.LastCall(ctx, 0)
			if err != nil || len(left) != 1 || left[0].Ending != tt.ending {
				t.Errorf("the report says %+v, %v; want %s", left, err, tt.ending)
			}
			if got := <-output; !strings.Contains(got, tt.says) {
				t.Errorf("the client says %s; want %s", got, tt.says)
			}
			awaitActivity(t, p, 0, 0)
		})
	}
}

// A client whose request head is too large gets a status.
func TestH2HeadTooLargeAsClientsSeeIt(t *testing.T) {
	app := startHTTP(t, func(http.ResponseWriter, *http.Request) {})
	for _, tt := range []struct {
		name   string
		limits wirehttp2.Limits
	}{
		{"list", wirehttp2.Limits{MaxHeaderList: 1000}},
		{"block", wirehttp2.Limits{MaxHeaderBlock: 1000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPipe(t, app, HTTP, func(c *Config) { c.H2 = tt.limits })
			url := "http://" + p.Addr(0).String()
			if got := shell(t, "curl", "--http2-prior-knowledge", "-sS", "-w", "%{http_code}", "-H", "x: "+strings.Repeat("a", 2000), url); got != "431, and is content" {
				t.Errorf("curl says %s", got)
			}
			req, _ := http.NewRequest("GET", url, nil)
			req.Header.Set("x", strings.Repeat("a", 2000))
			if got := tell(h2Client(t).Do(req)); got != `431 ""` {
				t.Errorf("net/http says %s", got)
			}
			if got := p.Stats(); floodsOf(got.H2) != 2 || got.Responses[4] != 2 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func tell(resp *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	output := fmt.Sprintf("%d %q", resp.StatusCode, b)
	if err != nil {
		output += " " + err.Error()
	}
	return output
}

// shell runs a program. How it fails differs with its version; that it does must not.
func shell(t *testing.T, name string, args ...string) string {
	cmd := exec.CommandContext(t.Context(), peers.Need(t, name), args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return fmt.Sprintf("%s, and fails: %v, %s", out, err, &complaint)
	}
	return fmt.Sprintf("%s, and is content", out)
}
