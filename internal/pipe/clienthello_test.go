package pipe

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/certificate/certificatetest"
)

// helloOf is what crypto/tls' client sends first.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); _ = tls.Client(a, config).Handshake() }()
	head := make([]byte, 5)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	<-done
	return append(head, body...)
}

func TestClientHello(t *testing.T) {
	for _, c := range []struct {
		name, serverName, alpn string
		protocols              []string
	}{
		{"both", "shop.example", "h2+http/1.1", []string{"h2", "http/1.1"}},
		{"no protocols", "shop.example", "", nil},
		{"no name", "", "h2", []string{"h2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := helloOf(t, &tls.Config{ServerName: c.serverName, NextProtos: c.protocols, InsecureSkipVerify: true})
			for n := 1; n < len(b); n++ {
				if hello, more := clientHelloAt(b[:n]); hello != nil || !more {
					t.Fatalf("%d of %d bytes: %d, %v", n, len(b), len(hello), more)
				}
			}
			hello, more := clientHelloAt(append(b, "more"...))
			if more || hello == nil {
				t.Fatalf("%d, %v", len(hello), more)
			}
			if got := readClientHello(hello); got.serverName != c.serverName || got.alpn != c.alpn {
				t.Errorf("%+v", got)
			}
		})
	}
	for _, other := range []string{"\x16\x02", "\x17\x03\x01", "\x16\x03\x01\x00\x02\x01", "\x16\x03\x01\xff\xff\x01", "\x16\x03\x01\x00\x10\x02", "\x16\x03\x01\x00\x04\x01\x00\x00\x01"} {
		if hello, more := clientHelloAt([]byte(other)); hello != nil || more {
			t.Errorf("%q is taken for a ClientHello", other)
		}
	}
}

func FuzzClientHello(f *testing.F) {
	f.Add(helloOf(f, &tls.Config{ServerName: "shop.example", NextProtos: []string{"h2", "http/1.1"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		hello, more := clientHelloAt(b)
		if more && hello != nil {
			t.Error("whole and not whole")
		}
		if info := readClientHello(hello); len(info.serverName) > 255 || len(info.alpn) > 400 {
			t.Errorf("%+v", info)
		}
	})
}

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
