package pipe

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

// TLS that passes through is named by its ClientHello, in the log and the report.
func TestTLSPassesThrough(t *testing.T) {
	authority := certificatetest.New(t)
	app := startApp(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{authority.Sign("app.test", 0)}, NextProtos: []string{"echo"}})
		_, _ = io.Copy(s, s)
	})
	for _, format := range []accesslog.Format{accesslog.Text, accesslog.JSON} {
		var log bytes.Buffer
		p := startPipe(t, app, Auto, func(cfg *Config) { cfg.AccessLog = accesslog.New(&log, format) })
		c := dialTLS(t, p, &tls.Config{RootCAs: authority.Pool(), NextProtos: []string{"echo"}})
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		open, _ := p.Open(ctx, 1)
		if len(open) != 1 || open[0].Protocol != "tls" || open[0].Request != "app.test" {
			t.Errorf("%+v", open)
		}
		_ = c.Close()
		awaitActivity(t, p, 0, 0)
		closePipe(t, p)
		want := []string{"app.test default\n"}
		if format == accesslog.JSON {
			want = []string{`"requested_server_name":"app.test"`, `"downstream_alpn":"echo"`, `"method":null`, `"downstream_tls_version":null`}
		}
		for _, part := range want {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%q is not in %s", part, log.String())
			}
		}
	}
}
