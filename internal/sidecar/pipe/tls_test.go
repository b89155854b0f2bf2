package pipe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

// secured makes an inbound end TLS with a certificate for app.test.
func secured(t *testing.T, authority *certificatetest.Authority, options ...func(*tlsserver.Options)) func(*Config) {
	t.Helper()
	secret := certificatetest.NewSecret(t)
	secret.Write(authority.Sign("app.test", 0), authority.PEM())
	c := &tlsserver.Options{Cert: secret.Cert(), Key: secret.Key()}
	for _, option := range options {
		option(c)
	}
	return func(cfg *Config) { cfg.Inbound[0].TLS = c }
}

// strict is a client's connection on which a FIN without a close_notify before it
// is an error: any machine on the path could have sent it (RFC 8446, 6.1). After a
// close_notify crypto/tls reads no further.
type strict struct{ net.Conn }

var errBareFIN = errors.New("a FIN without a close_notify")

func (s strict) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = errBareFIN
	}
	return n, err
}

// dialTLS is a strict client that has shaken hands.
func dialTLS(t *testing.T, p *Pipe, config *tls.Config) *tls.Conn {
	t.Helper()
	config = config.Clone()
	config.ServerName = "app.test"
	c := tls.Client(strict{dialPipe(t, p).TCPConn}, config)
	must.Do(t, c.Handshake())
	return c
}

func TestTLSEndsHere(t *testing.T) {
	authority := certificatetest.New(t)
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(bytes.ToUpper(body))
	})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, protocol := range []Protocol{Auto, HTTP, TCP} {
			t.Run(tls.VersionName(version)+" "+protocol.String(), func(t *testing.T) {
				p := startPipe(t, app, protocol, secured(t, authority))
				c := dialTLS(t, p, &tls.Config{RootCAs: authority.Pool(), MaxVersion: version, NextProtos: []string{"http/1.1"}})
				r := bufio.NewReader(c)
				for _, size := range []int{1, 20_000, 3_000_000, 10} { // one record, several, more than the buffers of both sides
					body := strings.Repeat("x", size)
					go func() {
						req, _ := http.NewRequest(http.MethodPost, "http://app.test/", strings.NewReader(body))
						_ = req.Write(c)
					}()
					resp, err := http.ReadResponse(r, nil)
					must.Do(t, err)
					got, err := io.ReadAll(resp.Body)
					if err != nil || string(got) != strings.ToUpper(body) {
						t.Fatalf("%d bytes of %d, %v", len(got), size, err)
					}
				}
				if protocol == TCP {
					_ = c.CloseWrite()
				} else {
					awaitActivity(t, p, 1, 0) // idle: no request, no handshake
					_ = p.Drain(ctx)
					_ = p.CloseIdle(ctx, 0)
				}
				if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
					t.Errorf("%q after the last response, %v", rest, err)
				}
				_ = c.Close()
				closePipe(t, p)
			})
		}
	}
}

// What the pipe says last is closed by close_notify, whatever it was.
func TestTLSEndings(t *testing.T) {
	authority := certificatetest.New(t)
	lastCall := func(p *Pipe, _ *scripted) { _, _ = p.LastCall(ctx, 0) }
	for _, tt := range []struct {
		name, send, answer string // of the app to the first request
		end                func(*Pipe, *scripted)
		want               string
	}{
		{"drain", get("/"), "", func(p *Pipe, app *scripted) {
			_ = p.Drain(ctx)
			app.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}, "connection: close"},
		{"last call", get("/"), "", lastCall, "503 Service Unavailable"},
		{"last call within a body", get("/"), "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", lastCall, "12345"},
		{"the app closes", get("/"), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n12345", func(_ *Pipe, app *scripted) { _ = (<-app.conn).Close() }, "12345"},
		{"a bad request", "GET / HTTP/1.1\r\nHost: app\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "", nil, "400 Bad Request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app := startScripted(t, tt.answer)
			p := startPipe(t, app, HTTP, secured(t, authority))
			client := dialTLS(t, p, &tls.Config{RootCAs: authority.Pool()})
			if _, err := io.WriteString(client, tt.send); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, len(tt.answer))
			if _, err := io.ReadFull(client, answer); err != nil {
				t.Fatal(err)
			}
			if tt.end != nil {
				app.conn <- <-app.conn // it has the request
				tt.end(p, app)
			}
			rest, err := io.ReadAll(client)
			if got := string(answer) + string(rest); err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%q, %v; lacks %q", got, err, tt.want)
			}
			_ = client.Close()
			closePipe(t, p)
		})
	}
}

// A handshake is busy from its first byte and for a limited time; a connection on
// which nothing comes is not, and holds no drain up.
func TestSlowHandshake(t *testing.T) {
	authority := certificatetest.New(t)
	app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	p := startPipe(t, app, HTTP, secured(t, authority), func(cfg *Config) { cfg.HandshakeTimeout = 300 * time.Millisecond })
	silent, slow := dialPipe(t, p), dialPipe(t, p, "\x16\x03\x01") // the beginning of a record
	_ = slow.rest()                                                // ended by the timeout
	silent.wantEnd()
	awaitActivity(t, p, 0, 0)
	if n := failedHandshakes(p, tlsserver.Timeout); n != 2 {
		t.Errorf("%d handshakes are counted as too slow", n)
	}
	// The report of a last call does not take a handshake for a request.
	p = startPipe(t, app, HTTP, secured(t, authority))
	slow = dialPipe(t, p)
	awaitActivity(t, p, 1, 0)
	slow.send("\x16\x03\x01")
	awaitActivity(t, p, 1, 1)
	if was, _ := p.LastCall(ctx, 0); len(was) != 1 || was[0].Protocol != "tls" || was[0].Ending != "fin" {
		t.Errorf("%+v", was)
	}
	slow.wantEnd()
	_ = slow.Close()
	closePipe(t, p)
	// In a drain the silent one is closed at once.
	p = startPipe(t, app, HTTP, secured(t, authority))
	silent = dialPipe(t, p)
	awaitActivity(t, p, 1, 0)
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	silent.wantEnd()
	closePipe(t, p)
}

// Each failure is counted by its reason, and the client gets an alert where one is possible.
func TestHandshakeFailures(t *testing.T) {
	authority, other := certificatetest.New(t), certificatetest.New(t)
	app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	trusting := tls.Config{RootCAs: authority.Pool(), ServerName: "app.test"}
	with := func(change func(*tls.Config)) *tls.Config { c := trusting.Clone(); change(c); return c }
	for _, c := range []struct {
		name   string
		server func(*tlsserver.Options)
		client *tls.Config
		reason tlsserver.Reason
	}{
		{"authority unknown to the client", nil, with(func(c *tls.Config) { c.RootCAs = other.Pool() }), tlsserver.ClientAlert},
		{"no certificate of the client's", mutualTLS, &trusting, tlsserver.NoCertificate},
		{"another authority's client", mutualTLS, with(func(c *tls.Config) { c.Certificates = []tls.Certificate{other.Sign("client", 0)} }), tlsserver.BadCertificate},
		{"an expired client", mutualTLS, with(func(c *tls.Config) { c.Certificates = []tls.Certificate{authority.Sign("client", time.Hour)} }), tlsserver.BadCertificate},
		{"TLS 1.1", nil, with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }), tlsserver.NoVersion},
		{"TLS 1.2 where 1.3 is needed", func(c *tlsserver.Options) { c.MinVersion = tls.VersionTLS13 }, with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), tlsserver.NoVersion},
		{"no cipher suite", nil, with(func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}
		}), tlsserver.NoCipher},
		{"h2 only", nil, with(func(c *tls.Config) { c.NextProtos = []string{"h2"} }), tlsserver.NoProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := c.server
			if server == nil {
				server = func(*tlsserver.Options) {}
			}
			p, raw := startClient(t, app, HTTP, secured(t, authority, server))
			client := tls.Client(raw.TCPConn, c.client)
			err := client.Handshake()
			if err == nil { // in TLS 1.3 the client is done before the server has seen its certificate
				_, err = client.Read(make([]byte, 1))
			}
			if op := (*net.OpError)(nil); c.reason != tlsserver.ClientAlert && (!errors.As(err, &op) || op.Op != "remote error") {
				t.Errorf("the client got no alert: %v", err)
			}
			_ = raw.Close()
			awaitActivity(t, p, 0, 0)
			closePipe(t, p)
			for reason := range tlsserver.ClientAlert + 1 {
				want := uint64(0)
				if reason == c.reason {
					want = 1
				}
				if n := failedHandshakes(p, reason); n != want {
					t.Errorf("%d failures are counted as %v, want %d; the client got: %v", n, reason, want, err)
				}
			}
		})
	}
	t.Run("no TLS at all", func(t *testing.T) {
		p, c := startClient(t, app, HTTP, secured(t, authority))
		c.send(get("/"))
		if resp := c.response("GET"); resp.StatusCode != 400 || !strings.Contains(bodyOf(resp), "HTTPS port") {
			t.Errorf("%v", resp)
		}
		c.wantEnd()
		probe := dialPipe(t, p) // a probe of the port is no failure
		awaitActivity(t, p, 1, 0)
		_ = probe.Close()
		awaitActivity(t, p, 0, 0)
		if failedHandshakes(p, tlsserver.NotTLS) != 1 || failedHandshakes(p, tlsserver.ClientGone) != 0 {
			t.Errorf("%d, %d", failedHandshakes(p, tlsserver.NotTLS), failedHandshakes(p, tlsserver.ClientGone))
		}
	})
	t.Run("a client of the authority", func(t *testing.T) {
		p := startPipe(t, app, HTTP, secured(t, authority, mutualTLS))
		c := dialTLS(t, p, with(func(c *tls.Config) { c.Certificates = []tls.Certificate{authority.Sign("client", 0)} }))
		if _, err := io.WriteString(c, get("/")); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

func failedHandshakes(p *Pipe, reason tlsserver.Reason) uint64 {
	for name, n := range p.Listeners()[0].TLS.Failures {
		if name == reason.String() {
			return n
		}
	}
	return 0
}

// A WebSocket over TLS ends as one without.
func TestWebSocketOverTLS(t *testing.T) {
	authority := certificatetest.New(t)
	app := startChat(t)
	p := startPipe(t, app, Auto, secured(t, authority))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: "app.test"}}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "wss://"+p.Addr(0).String()+"/chat", &websocket.DialOptions{HTTPClient: &client})
	must.Do(t, err)
	defer ws.CloseNow()
	say(t, ws, "hello")
	say(t, ws, string(fill(1, 30000)))
	report := lastCall(t, p, patience)
	_, _, err = ws.Read(ctx)
	if got := websocket.CloseStatus(err); got != websocket.StatusGoingAway {
		t.Errorf("the client sees %v", err)
	}
	app.wantEnd(t, websocket.StatusGoingAway)
	wantEndings(t, report(), "close 1001")
	closePipe(t, p)
}

// A body that ends with its connection is not ended by a close_notify when it is
// cut: that would make it whole.
func TestCutOverTLS(t *testing.T) {
	authority := certificatetest.New(t)
	app := startScripted(t, "HTTP/1.1 200 OK\r\n\r\nhalf")
	p := startPipe(t, app, Auto, secured(t, authority))
	c := dialTLS(t, p, &tls.Config{RootCAs: authority.Pool()})
	defer c.Close()
	_, _ = io.WriteString(c, get("/"))
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	must.Do(t, err)
	part(t, resp, 4)
	wantEndings(t, lastCall(t, p, patience)(), "truncated")
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("half a body looks whole")
	}
	<-app.got
}

// TLS that passes through is named by its ClientHello, in the log and the report. A drain leaves it alone: the request in
// flight is answered.
func TestTLSPassesThrough(t *testing.T) {
	authority := certificatetest.New(t)
	requested, free := make(chan struct{}, 2), make(chan struct{}, 2)
	app := startApp(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{authority.Sign("app.test", 0)}, NextProtos: []string{"echo"}})
		b := make([]byte, 5)
		_, _ = io.ReadFull(s, b)
		requested <- struct{}{}
		<-free
		_, _ = s.Write(b)
		_, _ = io.Copy(s, s)
	})
	for _, format := range []accesslog.Format{accesslog.Text, accesslog.JSON} {
		var log bytes.Buffer
		p := startPipe(t, app, Auto, func(cfg *Config) { cfg.AccessLog = accesslog.New(&log, format) })
		c := dialTLS(t, p, &tls.Config{RootCAs: authority.Pool(), NextProtos: []string{"echo"}})
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		<-requested
		open, _ := p.Open(ctx, 1)
		if len(open) != 1 || open[0].Protocol != "tls" || open[0].Request != "app.test" {
			t.Errorf("%+v", open)
		}
		_ = p.Drain(ctx)
		_ = p.CloseIdle(ctx, 0)
		free <- struct{}{}
		answer := make([]byte, 5)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "hello" {
			t.Errorf("in flight: %q, %v", answer, err)
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
