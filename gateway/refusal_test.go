package gateway

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

// Every forwarded request has one unambiguous host, which the endpoint receives.
func TestHost(t *testing.T) {
	hosts := app(t, func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Host) })
	g := start(t, setup{Endpoints: []string{hosts}})
	for _, tt := range []struct {
		name, head string
		status     int
		host       string // that the endpoint sees
	}{
		{"given", "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n", 200, "shop.example"},
		{"in the target", "GET http://shop.example/ HTTP/1.1\r\nHost: other\r\n\r\n", 200, "shop.example"},
		{"missing", "GET / HTTP/1.1\r\n\r\n", 400, ""},
		{"empty", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, ""},
		{"twice", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, ""},
		{"missing, HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", 200, g.addr},
		{"given, HTTP/1.0", "GET / HTTP/1.0\r\nHost: shop.example\r\n\r\n", 200, "shop.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, g.addr)
			say(t, c, tt.head)
			resp, body := readResponse(t, bufio.NewReader(c))
			if resp.StatusCode != tt.status || tt.status == 200 && body != tt.host {
				t.Errorf("got %s, the endpoint saw %q; want %d, %q", resp.Status, body, tt.status, tt.host)
			}
		})
	}
	for name, block := range map[string][]byte{
		"HTTP/2 without":        {0x82, 0x84, 0x86},
		"HTTP/2 with an empty":  {0x82, 0x84, 0x86, 0x41, 0},
		"HTTP/2 with two hosts": {0x82, 0x84, 0x86, 0x41, 1, 'a', 0x66, 1, 'b'}, // :authority and host
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, g.addr)
			say(t, c, http2.ClientPreface)
			f := http2.NewFramer(c, c)
			_ = f.WriteSettings()
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: block})
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if h, ok := frame.(*http2.HeadersFrame); ok {
					if got := h.HeaderBlockFragment()[0]; got != 0x8c { // :status 400
						t.Errorf("the response begins with %#x", got)
					}
					return
				}
			}
		})
	}
}

// A connection on which the client was shown another host's certificate is no way to that host.
func TestMisdirected(t *testing.T) {
	one, two := signed(t, "one.example"), signed(t, "two.example", "three.example")
	wild := signed(t, "*.wild.example")
	shown := new(Certificates)
	g := start(t, setup{Endpoints: []string{app(t, func(http.ResponseWriter, *http.Request) {})}, Certificates: selfSigned(t), Shown: shown})
	shown.Set(map[string]*tls.Certificate{
		"one.example": &one, "two.example": &two, "three.example": &two, "*.wild.example": &wild, "special.wild.example": &one,
	}, always(&g.cert))
	for _, tt := range []struct {
		sni, host string
		status    int
	}{
		{"one.example", "one.example", 200},
		{"one.example", "ONE.example.:8443", 200},
		{"one.example", "two.example", 421},
		{"one.example", "unknown.example", 421},
		{"two.example", "three.example", 200},           // the same certificate
		{"a.wild.example", "b.wild.example", 200},       // as well
		{"a.wild.example", "special.wild.example", 200}, // the certificate names both
		{"special.wild.example", "a.wild.example", 421},
		{"unknown.example", "other.example", 200}, // the fallback for both
		{"unknown.example", "one.example", 421},
		{"", "one.example", 200}, // no SNI, as some load balancers
	} {
		t.Run(tt.sni+" and "+tt.host, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, h2 bool) {
				tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{ServerName: tt.sni, InsecureSkipVerify: true}}
				tr.Protocols.SetHTTP1(!h2)
				tr.Protocols.SetHTTP2(h2)
				defer tr.CloseIdleConnections()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+g.addr, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = tt.host
				resp, err := (&http.Client{Transport: tr, Timeout: patience}).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != tt.status {
					t.Errorf("got %s, want %d", resp.Status, tt.status)
				}
			})
		})
	}
}

func signed(t *testing.T, hosts ...string) tls.Certificate {
	t.Helper()
	cert := certificatetest.SelfSigned(t, hosts...)
	return cert
}

// TLS 1.2 is spoken with authenticated encryption alone.
func TestCipherSuites(t *testing.T) {
	g := start(t, setup{Certificates: selfSigned(t)})
	roots := x509.NewCertPool()
	roots.AddCert(g.cert.Leaf)
	accepted := 0
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if suite.SupportedVersions[0] > tls.VersionTLS12 {
			continue
		}
		c, err := tls.Dial("tcp", g.addr, &tls.Config{
			RootCAs: roots, ServerName: "shop.example", MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID},
		})
		if err != nil {
			continue
		}
		_ = c.Close()
		accepted++
		switch suite.ID {
		case tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		default:
			t.Errorf("%s is accepted", suite.Name)
		}
	}
	if accepted != 3 {
		t.Errorf("%d suites are accepted, want 3", accepted)
	}
}

// An endpoint gets no more connections than are allowed; connections that have ended do not count.
func TestConnectionsPerEndpoint(t *testing.T) {
	addr, arrived, more := slowApp(t)
	g := start(t, setup{Endpoints: []string{addr}, MaxPerEndpoint: 2, MaxAttempts: 1})
	ask := func() *bufio.Reader {
		c := dial(t, g.addr)
		say(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		return bufio.NewReader(c)
	}
	first, second := ask(), ask()
	within(t, "request", arrived)
	within(t, "request", arrived)
	if resp, body := readResponse(t, ask()); resp.StatusCode != 503 || body != accesslog.ResetBody(accesslog.ReasonOverflow, false) {
		t.Errorf("the third got %s %q", resp.Status, body)
	}
	g.access.until(t, " 503 UO upstream_reset_before_response_started{overflow} ")
	close(more)
	for _, r := range []*bufio.Reader{first, second} {
		if resp, _ := readResponse(t, r); resp.StatusCode != 200 {
			t.Errorf("got %s", resp.Status)
		}
	}
	// The app has closed both connections; the gateway sees that a moment later.
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		resp, _ := readResponse(t, ask())
		if resp.StatusCode == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("later: %s", resp.Status)
		}
	}
}

// Clients beyond the limit are refused; connected ones continue, and each that leaves makes room.
func TestConnectionsOfClients(t *testing.T) {
	g := start(t, setup{Endpoints: []string{raw(t, answers)}, MaxConnections: 2})
	served := func(c net.Conn, r *bufio.Reader) error {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	first, second := dial(t, g.addr), dial(t, g.addr)
	r1, r2 := bufio.NewReader(first), bufio.NewReader(second)
	if err := errors.Join(served(first, r1), served(second, r2)); err != nil {
		t.Fatal(err)
	}
	third := dial(t, g.addr)
	if err := served(third, bufio.NewReader(third)); err == nil {
		t.Error("a third is served")
	}
	if err := served(first, r1); err != nil {
		t.Error("the first: ", err)
	}
	_ = second.Close()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // the gateway sees that a moment later
		c := dial(t, g.addr)
		if served(c, bufio.NewReader(c)) == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no room is made")
		}
	}
}

// A path cannot lead out of the routes that it is matched by.
func TestDotSegments(t *testing.T) {
	g := start(t, setup{Endpoints: []string{raw(t, answers)}})
	for path, status := range map[string]int{
		"/public/../admin": 400, "/public/%2e%2E/admin": 400, "/public%2f..%2fadmin": 400, "/./a": 400, "/..": 400, "/a/.": 400,
		"/.well-known/x": 200, "/a..b/...": 200, "/a/..b": 200, "/?x=/../": 200,
	} {
		c := dial(t, g.addr)
		say(t, c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := readResponse(t, bufio.NewReader(c)); resp.StatusCode != status {
			t.Errorf("%s got %s, want %d", path, resp.Status, status)
		}
	}
}
