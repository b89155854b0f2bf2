package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// A client that resets each request at once gets GOAWAY with ENHANCE_YOUR_CALM. Other clients are not affected.
func TestRapidReset(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			var connections atomic.Int32
			addr := raw(t, func(n int, c net.Conn, r *bufio.Reader) {
				connections.Add(1)
				answers(n, c, r)
			})
			o := setup{Endpoints: []string{addr}}
			if secure {
				o.Certificates = selfSigned(t)
			}
			g := start(t, o)
			c := g.framed(t, secure)
			go func() {
				f := http2.NewFramer(c, nil)
				for id := uint32(1); id < 200_000; id += 2 {
					if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true, BlockFragment: []byte{
						0x82, 0x86, 0x41, 1, 'a', 0x04, 5, '/', 's', 'l', 'o', 'w',
					}}) != nil || f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
						return
					}
				}
			}()
			f := http2.NewFramer(nil, c)
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatal("no GOAWAY came: ", err)
				}
				if away, ok := frame.(*http2.GoAwayFrame); ok {
					if away.ErrCode != http2.ErrCodeEnhanceYourCalm {
						t.Errorf("the GOAWAY says %v", away.ErrCode)
					}
					break
				}
			}
			// The connection ends.
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
			if n := connections.Load(); n > 600 {
				t.Errorf("the endpoint had %d connections", n)
			}
			other, url := g.client(t, secure)
			if resp, _ := get(t, other, url); resp.StatusCode != 200 {
				t.Errorf("another client got %s", resp.Status)
			}
		})
	}
}

// framed is a connection of HTTP/2 to the gateway on which the test writes the frames.
func (r *running) framed(t *testing.T, secure bool) net.Conn {
	t.Helper()
	c := dial(t, r.addr)
	if secure {
		tc := tls.Client(c, &tls.Config{ServerName: "a", InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := tc.Handshake(); err != nil {
			t.Fatal(err)
		}
		c = tc
	}
	say(t, c, http2.ClientPreface)
	if err := http2.NewFramer(c, nil).WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}
