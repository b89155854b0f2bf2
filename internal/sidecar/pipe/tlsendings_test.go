package pipe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

// A WebSocket over TLS ends as one without.
func TestWebSocketOverTLS(t *testing.T) {
	authority := certificatetest.New(t)
	app := startChat(t)
	p := startPipe(t, app, Auto, secured(t, authority))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: "app.test"}}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "wss://"+p.Addr(0).String()+"/chat", &websocket.DialOptions{HTTPClient: &client})
	must(t, err)
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
	must(t, err)
	part(t, resp, 4)
	wantEndings(t, lastCall(t, p, patience)(), "truncated")
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("half a body looks whole")
	}
	<-app.got
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
