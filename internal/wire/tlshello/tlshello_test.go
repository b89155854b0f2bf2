package tlshello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// helloOf returns the first record that a client of crypto/tls sends.
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
				if hello, more := Find(b[:n]); hello != nil || !more {
					t.Fatalf("%d of %d bytes: %d, %v", n, len(b), len(hello), more)
				}
			}
			hello, more := Find(append(b, "more"...))
			if more || hello == nil {
				t.Fatalf("%d, %v", len(hello), more)
			}
			if got := Parse(hello); got.ServerName != c.serverName || got.ALPN != c.alpn {
				t.Errorf("%+v", got)
			}
		})
	}
	for _, other := range []string{"\x16\x02", "\x17\x03\x01", "\x16\x03\x01\x00\x02\x01", "\x16\x03\x01\xff\xff\x01", "\x16\x03\x01\x00\x10\x02", "\x16\x03\x01\x00\x04\x01\x00\x00\x01"} {
		if hello, more := Find([]byte(other)); hello != nil || more {
			t.Errorf("%q is taken for a ClientHello", other)
		}
	}
}

// FuzzClientHello reads what crypto/tls accepts as crypto/tls does.
func FuzzClientHello(f *testing.F) {
	f.Add(helloOf(f, &tls.Config{ServerName: "shop.example", NextProtos: []string{"h2", "http/1.1"}}))
	f.Add(helloOf(f, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		hello, more := Find(b)
		if more && hello != nil {
			t.Error("both complete and incomplete")
		}
		names := Parse(hello)
		if len(names.ServerName) > 255 || len(names.ALPN) > maxALPN+256 {
			t.Errorf("%+v", names)
		}
		theirs, ok := asCryptoTLS(b)
		if ok && hello != nil && (names.ServerName != theirs.ServerName || len(names.ALPN) < maxALPN && names.ALPN != theirs.ALPN) {
			t.Errorf("%+v; crypto/tls reads %+v", names, theirs)
		}
	})
}

// asCryptoTLS returns the names that crypto/tls finds; ok is false if it does not accept the ClientHello.
func asCryptoTLS(b []byte) (names Names, ok bool) {
	stop := errors.New("stop")
	config := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		names, ok = Names{hello.ServerName, strings.Join(hello.SupportedProtos, "+")}, true
		return nil, stop
	}}
	_ = tls.Server(recorded{r: bytes.NewReader(b)}, config).Handshake()
	return names, ok
}

// recorded is a connection on which bytes have arrived, and then its end.
type recorded struct {
	net.Conn
	r io.Reader
}

func (c recorded) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c recorded) Write(p []byte) (int, error) { return len(p), nil }
