package pipe

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// Behind HTTP/2's preface an app that speaks HTTP/1.1 may serve whatever a client sends: it is an open conversation, not
// one that no report shows.
func TestPrefaceToHTTP1App(t *testing.T) {
	const (
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		hidden   = "\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
		refusal  = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
		answer   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	)
	unknownFrame := "\x00\x00" + string(rune(len(hidden))) + "\x20\x00\x00\x00\x00\x00" + hidden
	for name, tt := range map[string]struct {
		sends, first string
		protocols    []Protocol
		halfCloses   bool
	}{
		"a request":                         {sends: hidden, protocols: []Protocol{Auto}},
		"a refusal, and a request":          {sends: hidden, first: refusal, protocols: []Protocol{Auto}},
		"within a frame":                    {sends: settings + unknownFrame, protocols: []Protocol{Auto, HTTP}},
		"a refusal, and within a frame":     {sends: settings + unknownFrame, first: refusal, protocols: []Protocol{Auto, HTTP}},
		"within a frame, with a half-close": {sends: settings + unknownFrame, protocols: []Protocol{Auto, HTTP}, halfCloses: true},
	} {
		for _, protocol := range tt.protocols {
			for _, end := range []string{"answer", "last call"} {
				t.Run(name+", "+protocol.String()+", "+end, func(t *testing.T) {
					t.Parallel()
					serving, answers := make(chan struct{}), make(chan struct{})
					app := startApp(t, func(c net.Conn) {
						var got bytes.Buffer
						b := make([]byte, 512)
						for !strings.Contains(got.String(), "/hidden") {
							n, err := c.Read(b)
							if err != nil {
								return
							}
							if got.Len() == 0 {
								_, _ = io.WriteString(c, tt.first)
							}
							got.Write(b[:n])
						}
						close(serving)
						<-answers
						_, _ = io.WriteString(c, answer)
					})
					p := startPipe(t, app, protocol)
					c := dialPipe(t, p, http2.Preface+tt.sends)
					if tt.halfCloses {
						must.Do(t, c.CloseWrite())
					}
					<-serving
					c.expect(tt.first)
					awaitActivity(t, p, 1, 1)
					_ = p.Drain(ctx)
					_ = p.CloseIdle(ctx, 0)
					awaitActivity(t, p, 1, 1)
					if end == "answer" {
						close(answers)
						c.expect(answer)
						c.wantEnd()
						_ = c.Close()
						awaitActivity(t, p, 0, 0)
						return
					}
					open, err := p.LastCall(ctx, 0)
					if len(open) != 1 || err != nil || open[0].Ending == "" {
						t.Errorf("open at the last call: %+v, %v", open, err)
					}
					close(answers)
				})
			}
		}
	}
	t.Run("HTTP only", func(t *testing.T) {
		app := startApp(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		p := startPipe(t, app, HTTP)
		c := dialPipe(t, p, http2.Preface+hidden)
		if got := c.rest(); !strings.Contains(got, "\x00\x00\x00\x01") { // GOAWAY with PROTOCOL_ERROR
			t.Errorf("got %q", got)
		}
		awaitActivity(t, p, 0, 0)
	})
}

// A client of HTTP/2 is idle once its app has spoken.
func TestPrefaceToSilentApp(t *testing.T) {
	speaks := make(chan struct{})
	app := startApp(t, func(c net.Conn) {
		f := readPreface(c)
		<-speaks
		_ = f.WriteSettings()
		for id := nextRequest(f); id > 0; id = nextRequest(f) {
			respond(f, id, true, ":status", "200")
		}
	})
	p, r := startRaw(t, app, Auto)
	awaitActivity(t, p, 1, 1)
	close(speaks)
	awaitActivity(t, p, 1, 0)
	r.request(1, true, ":path", "/")
	awaitRequests(t, p, 1)
	awaitActivity(t, p, 1, 0)
}
