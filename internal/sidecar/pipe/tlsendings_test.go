package pipe

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/coder/websocket"

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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	part(t, resp, 4)
	wantEndings(t, lastCall(t, p, patience)(), "truncated")
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("half a body looks whole")
	}
	<-app.got
}
