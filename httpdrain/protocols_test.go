package httpdrain

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func loopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	return ln
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	must.Do(t, err)
}

// served serves on a listener of its own until the test ends.
func served(t *testing.T, p *Plane, secure bool) string {
	t.Helper()
	ln := loopback(t)
	servedOn(t, p, ln, secure)
	return ln.Addr().String()
}

// servedOn serves on a listener until the test ends.
func servedOn(t *testing.T, p *Plane, ln net.Listener, secure bool) {
	t.Helper()
	serve := p.Serve
	if secure {
		serve = p.ServeTLS
	}
	done := make(chan error, 1)
	go func() { done <- serve(ln) }()
	t.Cleanup(func() {
		p.Kill()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		p.lingering.Wait()
	})
}

// dial connects, with TLS or without, for HTTP/1.1.
func dial(t *testing.T, address string, secure bool, config *tls.Config) net.Conn {
	t.Helper()
	return dialFor(t, address, secure, config, "http/1.1")
}

func dialFor(t *testing.T, address string, secure bool, config *tls.Config, protocol string) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	if secure {
		config.NextProtos = []string{protocol}
		c, err = tls.Dial("tcp", address, config)
	} else {
		c, err = net.Dial("tcp", address)
	}
	must.Do(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// framer begins HTTP/2 on a connection.
func framer(t *testing.T, c net.Conn, settings ...http2.Setting) *http2.Framer {
	t.Helper()
	send(t, c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	must.Do(t, f.WriteSettings(settings...))
	return f
}

// ask sends a GET on a stream: indexed fields of HPACK's static table, and literals of :path and :authority.
func ask(t *testing.T, f *http2.Framer, stream uint32, path string) {
	t.Helper()
	block := append([]byte{0x82, 0x87, 0x04, byte(len(path))}, path+"\x01\x0bexample.com"...)
	must.Do(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: true, EndHeaders: true}))
}

// newTLSServer returns a server with a certificate, and the client's configuration for it.
func newTLSServer() (*http.Server, *tls.Config) {
	issuer := httptest.NewUnstartedServer(nil) // for its certificate
	issuer.StartTLS()
	defer issuer.Close()
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		TLSConfig: &tls.Config{
			Certificates: issuer.TLS.Certificates, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		},
		ReadHeaderTimeout: patience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}, &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}
}

// TestPrefaceInADrain: net/http passes the preface of HTTP/2 to the handler, as a request of HTTP/2.0, if it does not
// serve HTTP/2 on the connection.
func TestPrefaceInADrain(t *testing.T) {
	t.Parallel()
	for name, choose := range everyProtocols {
		for _, secure := range []bool{false, true} {
			t.Run(map[bool]string{false: name, true: name + ", TLS"}[secure], func(t *testing.T) {
				t.Parallel()
				server, config := newTLSServer()
				choose(server)
				p := New(server, Options{})
				address := served(t, p, secure)
				must.Do(t, p.Drain(t.Context()))
				c := dial(t, address, secure, config)
				// A frame of a size that HTTP/2 does not allow: there the server ends the connection.
				send(t, c, http2.ClientPreface+strings.Repeat("\xff", 9))
				answer, err := io.ReadAll(c)
				if errors.Is(err, os.ErrDeadlineExceeded) || len(answer) == 0 {
					t.Fatalf("answer %q, %v", answer, err)
				}
				withoutTLS := server.Protocols != nil && server.Protocols.UnencryptedHTTP2() && !secure
				if isHTTP1 := strings.HasPrefix(string(answer), "HTTP/1.1 "); isHTTP1 == withoutTLS {
					t.Errorf("answer %q: HTTP/1.1 is %v", answer, isHTTP1)
				}
			})
		}
	}
}

// TestProtocolsAreTheServers: a Plane serves HTTP/2 where net/http alone would, and nowhere else.
func TestProtocolsAreTheServers(t *testing.T) {
	for name, choose := range everyProtocols {
		t.Run(name, func(t *testing.T) {
			server, config := newTLSServer()
			server.TLSConfig.NextProtos = nil
			choose(server)
			isHTTP2 := name == "default" || server.Protocols != nil && server.Protocols.HTTP2()
			p := New(server, Options{})
			address := served(t, p, true)
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			got := get(&http.Client{Transport: transport, Timeout: patience}, "https://"+address)
			if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[isHTTP2]; got.err != nil || got.body != want {
				t.Errorf("%v: want %s", got, want)
			}
		})
	}
}

// TestGoAwayWithoutTLS: also if HTTP/2 over TLS is off, a connection without TLS gets the GOAWAY that refuses nothing.
func TestGoAwayWithoutTLS(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		p := New(&http.Server{Protocols: protocols(overTLS, true), Handler: http.NotFoundHandler(), ReadHeaderTimeout: patience}, Options{})
		c := dial(t, served(t, p, false), false, nil)
		must.Do(t, p.Drain(t.Context()))
		f := framer(t, c)
		ask(t, f, 1, "/")
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatalf("HTTP/2 over TLS is %v: %v before a GOAWAY", overTLS, err)
			}
			if g, ok := frame.(*http2.GoAwayFrame); ok {
				if g.LastStreamID != 1<<31-1 {
					t.Errorf("HTTP/2 over TLS is %v: GOAWAY of stream %d", overTLS, g.LastStreamID)
				}
				break
			}
		}
	}
}

// TestPanicAtTheLastCall: the program's functions that the last call runs do not end the process.
func TestPanicAtTheLastCall(t *testing.T) {
	begun := make(chan struct{}, 2)
	p := New(&http.Server{
		ReadHeaderTimeout: patience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/begun" {
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
				OnLastCall(w, func() string { panic("the ending's") })
			}
			begun <- struct{}{}
			<-r.Context().Done()
		}),
	}, Options{Answer: func(http.ResponseWriter, *http.Request) { panic("the answer's") }})
	address := served(t, p, false)
	for _, path := range []string{"/begun", "/held"} {
		send(t, dial(t, address, false, nil), "GET "+path+" HTTP/1.1\r\nHost: app\r\n\r\n")
		<-begun
	}
	ended, err := p.LastCall(t.Context(), 0)
	if err != nil || len(ended) != 2 {
		t.Errorf("%+v %v", ended, err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
