package gateway

import (
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// Every meaning that the gateway reads from net/http's errors, each from the frames that cause it. When this fails
// after an update of Go, an error has another text or has become a type: see the constants above h2cErrorOf.
func TestH2CErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(c net.Conn, f *http2.Framer, id uint32)
		want   h2cError
	}{
		{"refused", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, refusedStream},
		{"reset", func(_ net.Conn, f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeInternal) }, resetStream},
		{"GOAWAY", func(_ net.Conn, f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }, beyondGoAway},
		{"closed", func(c net.Conn, _ *http2.Framer, _ uint32) { _ = c.Close() }, terminated},
		{"GOAWAY that includes the stream, closed", func(c net.Conn, f *http2.Framer, id uint32) {
			_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = c.Close()
		}, terminated},
		{"HTTP/1.1", func(c net.Conn, _ *http2.Framer, _ uint32) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}, malformed},
		{"a frame that is too large", func(_ net.Conn, f *http2.Framer, id uint32) {
			_ = f.WriteRawFrame(http2.FrameData, 0, id, make([]byte, 1<<20))
		}, malformed},
		{"DATA on stream 0", func(_ net.Conn, f *http2.Framer, _ uint32) { _ = f.WriteRawFrame(http2.FrameData, 0, 0, nil) }, malformed},
		{"a response without a status", func(_ net.Conn, f *http2.Framer, id uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x84}, EndHeaders: true, EndStream: true}) // :path
		}, malformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := h2cClientConn(t, h2cRaw(t, func(_ int, c net.Conn, f *http2.Framer, id uint32, _ string) { tt.answer(c, f, id) }))
			resp, err := roundTripOn(t, c)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if err == nil || h2cErrorOf(err) != tt.want {
				t.Errorf("%v: is %d, want %d", err, h2cErrorOf(err), tt.want)
			}
		})
	}
	t.Run("used up since it was reserved", func(t *testing.T) {
		c := h2cClientConn(t, h2cRaw(t, func(_ int, _ net.Conn, f *http2.Framer, id uint32, _ string) { answerOK(f, id, "") }))
		resp, err := roundTripOn(t, c)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if err := c.Reserve(); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if _, err := roundTripOn(t, c); err == nil || h2cErrorOf(err) != neverBegun {
			t.Errorf("%v: want neverBegun", err)
		}
	})
}

func h2cClientConn(t *testing.T, addr string) *http.ClientConn {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	c, err := tr.NewClientConn(t.Context(), "http", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func roundTripOn(t *testing.T, c *http.ClientConn) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.RoundTrip(req)
}
