package pipe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// coder codes header blocks.
type coder struct {
	block bytes.Buffer
	enc   *hpack.Encoder
}

func newCoder() *coder {
	c := new(coder)
	c.enc = hpack.NewEncoder(&c.block)
	return c
}

// code is the block of names and values.
func (c *coder) code(fields ...string) []byte {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return c.block.Bytes()
}

// headers is a whole header block of a stream.
func headers(id uint32, end bool, block []byte) http2.HeadersFrameParam {
	return http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end}
}

// respond writes an app's header block.
func respond(f *http2.Framer, id uint32, end bool, fields ...string) {
	_ = f.WriteHeaders(headers(id, end, newCoder().code(fields...)))
}

// raw speaks HTTP/2 frame by frame.
type raw struct {
	*client
	*http2.Framer
	*coder
	dec *hpack.Decoder
}

func dialRaw(t *testing.T, p *Pipe, settings ...http2.Setting) *raw {
	return dialPipe(t, p).raw(settings...)
}

// startRaw starts a pipe with a client.
func startRaw(t *testing.T, app net.Addr, protocol Protocol, options ...func(*Config)) (*Pipe, *raw) {
	p := startPipe(t, app, protocol, options...)
	return p, dialRaw(t, p)
}

// raw begins HTTP/2 on a connection.
func (c *client) raw(settings ...http2.Setting) *raw {
	c.send(wirehttp2.Preface)
	r := &raw{c, http2.NewFramer(c.TCPConn, c.r), newCoder(), hpack.NewDecoder(4096, nil)}
	must.Do(c.t, r.WriteSettings(settings...))
	return r
}

func (r *raw) headers(id uint32, end bool, fields ...string) {
	r.t.Helper()
	must.Do(r.t, r.WriteHeaders(headers(id, end, r.code(fields...))))
}

func (r *raw) request(id uint32, end bool, fields ...string) {
	r.t.Helper()
	r.headers(id, end, append([]string{":method", "POST", ":scheme", "http", ":authority", "app"}, fields...)...)
}

// until reads to the first frame for which met is true.
func (r *raw) until(met func(http2.Frame) bool) {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		must.Do(r.t, err)
		if met(f) {
			return
		}
	}
}

// untilData reads until DATA frames contain this.
func (r *raw) untilData(want string) {
	r.t.Helper()
	data := ""
	r.until(func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok {
			data += string(d.Data())
		}
		return strings.Contains(data, want)
	})
}

// frames reads until the end and returns the frames in short form.
func (r *raw) frames() (out []string) {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				out = append(out, err.Error())
			}
			return out
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			fields, err := r.dec.DecodeFull(f.HeaderBlockFragment())
			must.Do(r.t, err)
			var words []string
			for _, field := range fields {
				if field.Name == ":status" || strings.HasPrefix(field.Name, "grpc-") {
					words = append(words, field.Name+"="+field.Value)
				}
			}
			out = append(out, fmt.Sprintf("HEADERS %d end=%v %s", f.StreamID, f.StreamEnded(), strings.Join(words, " ")))
		case *http2.DataFrame:
			out = append(out, fmt.Sprintf("DATA %d %q end=%v", f.StreamID, f.Data(), f.StreamEnded()))
		case *http2.RSTStreamFrame:
			out = append(out, fmt.Sprintf("RST %d %v", f.StreamID, f.ErrCode))
		case *http2.GoAwayFrame:
			out = append(out, fmt.Sprintf("GOAWAY %d %v", f.LastStreamID, f.ErrCode))
		}
	}
}

// readPreface begins HTTP/2 as an app that has read its client's preface.
func readPreface(c net.Conn) *http2.Framer {
	_, _ = io.ReadFull(c, make([]byte, len(wirehttp2.Preface)))
	return http2.NewFramer(c, c)
}

// serveFrames is readPreface, and the app's SETTINGS.
func serveFrames(c net.Conn) *http2.Framer {
	f := readPreface(c)
	_ = f.WriteSettings()
	return f
}

// nextRequest is the stream of the next HEADERS; 0: the client has gone.
func nextRequest(f *http2.Framer) uint32 {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return 0
		}
		if h, ok := frame.(*http2.HeadersFrame); ok {
			return h.StreamID
		}
	}
}

// awaitFinishing waits until the last call of the pipe's first connection has begun.
func awaitFinishing(t *testing.T, p *Pipe) {
	t.Helper()
	c := p.all()[0]
	polltest.Eventually(t, "the connection is finishing", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.h2.finishing
	})
}

// wantAmong wants these parts of the frames until the end, which it returns.
func (r *raw) wantAmong(parts ...string) (got string) {
	r.t.Helper()
	got = strings.Join(r.frames(), "\n")
	for _, part := range parts {
		if !strings.Contains(got, part) {
			r.t.Errorf("lacks %s:\n%s", part, got)
		}
	}
	return got
}

func (r *raw) want(frames ...string) {
	r.t.Helper()
	if got := r.frames(); strings.Join(got, "\n") != strings.Join(frames, "\n") {
		r.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(frames, "\n  "))
	}
}
