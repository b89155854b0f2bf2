package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
)

// A client that goes away takes its request to the endpoint along.
func TestClientGone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer string
		status string
	}{
		{"before the response", "", " 0 DC downstream_remote_disconnect "},
		{"in the midst of it", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", " 200 DC downstream_remote_disconnect "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, h2 bool) {
				arrived, gone := make(chan struct{}, 1), make(chan struct{}, 1)
				addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
					if _, err := readRequest(r); err != nil {
						return
					}
					_, _ = io.WriteString(c, tt.answer)
					arrived <- struct{}{}
					_, _ = r.ReadByte()
					gone <- struct{}{}
				})
				g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
				c, url := g.client(t, h2)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					resp, err := c.Do(req)
					if err == nil {
						_, err = io.ReadAll(io.LimitReader(resp.Body, 4))
						leave()
						_ = resp.Body.Close()
					}
					ended <- err
				}()
				within(t, "request", arrived)
				if tt.answer == "" {
					leave()
				}
				within(t, "end of the client", ended)
				within(t, "end of the endpoint's connection", gone)
				g.access.until(t, tt.status)
			})
		})
	}
}

// A client that leaves in the midst of its own body is no fault of the endpoint's.
func TestClientGoneInItsBody(t *testing.T) {
	g := start(t, setup{Endpoints: []string{raw(t, answers)}})
	c := dial(t, g.addr)
	say(t, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	_ = c.Close()
	g.access.until(t, ` 0 DC downstream_remote_disconnect - "-" 4 0 `)
}
