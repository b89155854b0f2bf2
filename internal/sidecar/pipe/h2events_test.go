package pipe

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An event stream over HTTP/2 ends at the last call as one over HTTP/1.1 does: with
// END_STREAM only where its client loses nothing by it, else with an error code.
func TestH2EventStreams(t *testing.T) {
	const (
		reset = "RST 1 INTERNAL_ERROR"
		token = `data: {"object":"chat.completion.chunk"}` + "\n\n"
	)
	for _, tt := range []struct {
		name, method, status, encoding string
		before, after                  string // of the body
		ends                           bool   // by END_STREAM with the rest
		want, ending                   string
	}{
		{"a subscription", "GET", "200", "", "data: 1\n\n", "", false, `DATA 1 "" end=true`, ""},
		{"a subscription within an event", "GET", "200", "", "data: 1\n", "\n", false, `DATA 1 "\n" end=false` + "\n" + `DATA 1 "" end=true`, ""},
		{"a subscription within an event that does not end", "GET", "200", "", "data: 1\n", "", false, reset, "reset"},
		{"a subscription that ends with its event", "GET", "200", "", "data: 1\n", "\n", true, `DATA 1 "\n" end=true`, ""},
		{"compressed", "GET", "200", "gzip", "data: 1\n\n", "", false, reset, "reset"},
		{"a failure", "GET", "500", "", "data: 1\n\n", "", false, reset, "reset"},
		{"an answer", "POST", "200", "", token, "", false, reset, "reset"},
		{"an answer to a GET", "GET", "200", "", token, "", false, reset, "reset"},
		{"a complete answer", "POST", "200", "", token + "data: [DONE]\n\n", "", false, `DATA 1 "" end=true`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			called := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				f := serveFrames(c)
				nextRequest(f)
				var block strings.Builder
				enc := hpack.NewEncoder(&block)
				fields := []hpack.HeaderField{{Name: ":status", Value: tt.status}, {Name: "content-type", Value: "text/event-stream; charset=utf-8"}}
				if tt.encoding != "" {
					fields = append(fields, hpack.HeaderField{Name: "content-encoding", Value: tt.encoding})
				}
				for _, field := range fields {
					_ = enc.WriteField(field)
				}
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true})
				_ = f.WriteData(1, false, []byte(tt.before))
				<-called
				if tt.after != "" {
					_ = f.WriteData(1, tt.ends, []byte(tt.after))
				}
				_, _ = io.Copy(io.Discard, c)
			})
			p := startPipe(t, app, HTTP)
			r := dialRaw(t, p)
			r.block.Reset()
			for _, field := range []hpack.HeaderField{{Name: ":method", Value: tt.method}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "app"}, {Name: ":path", Value: "/events"}} {
				_ = r.enc.WriteField(field)
			}
			if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
				t.Fatal(err)
			}
			for body := ""; body != tt.before; {
				f, err := r.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if d, ok := f.(*http2.DataFrame); ok {
					body += string(d.Data())
				}
			}
			window := 50 * time.Millisecond
			if tt.after != "" {
				window = patience
			}
			report := lastCall(t, p, window)
			if tt.after != "" {
				awaitFinishing(t, p)
			}
			close(called)
			var got []string
			for _, f := range r.frames() {
				if !strings.HasPrefix(f, "GOAWAY") {
					got = append(got, f)
				}
			}
			if strings.Join(got, "\n") != tt.want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), tt.want)
			}
			wantEndings(t, report(), tt.ending)
		})
	}
}
