package pipe

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// A client that says close_notify, and no more, has not sent a request: the app that ends the connection then has not
// dropped one.
func TestCloseNotify(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			authority := certificatetest.New(t)
			ln := nettest.Listen(t, "127.0.0.1:0")
			go func() { // an app that ends its connections without a close_notify of its own
				raw, err := ln.Accept()
				if err != nil {
					return
				}
				defer raw.Close()
				app := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{authority.Sign("app.test", 0)}})
				for in := bufio.NewReader(app); ; {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					_, _ = io.WriteString(app, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			}()
			p := startPipe(t, ln.Addr(), Auto)
			nc, err := tls.Dial("tcp", p.Addr(0).String(), &tls.Config{MaxVersion: version, RootCAs: authority.Pool(), ServerName: "app.test"})
			must.Do(t, err)
			defer nc.Close()
			for range firstRequest {
				_, err = io.WriteString(nc, "GET /0 HTTP/1.1\r\nHost: app.test\r\n\r\n")
				must.Do(t, err)
				_, err := http.ReadResponse(bufio.NewReader(nc), nil)
				must.Do(t, err)
			}
			must.Do(t, nc.CloseWrite())
			_, _ = io.Copy(io.Discard, nc)
			polltest.Eventually(t, "the app has ended the connection", func() bool {
				a, _ := p.Activity(ctx)
				return a.OpaqueEnds.Ended == 1
			})
			if a, _ := p.Activity(ctx); a.OpaqueEnds.Dropped != 0 {
				t.Errorf("%+v", a.OpaqueEnds)
			}
		})
	}
}
