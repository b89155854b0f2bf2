package traffic

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// holdWebSocket opens a WebSocket, sends a message, if there is one, and reads until the connection ends.
func (k *kept) holdWebSocket(ctx context.Context, r Request, o *Outcome) {
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return k, nil },
	}
	head := r.to(k.address)
	url := "ws://" + k.address + r.Path
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // Dial closes it
		HTTPClient: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader: head.Header, Host: head.Host,
	})
	if resp != nil {
		o.First, o.Status = time.Now(), resp.StatusCode
	}
	if err != nil {
		o.fail(ctx, err, Ended)
		if o.Status >= http.StatusBadRequest {
			o.Failure = Failure(fmt.Sprint(o.Status))
		}
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	o.Framing = Chunked
	if r.Body != "" {
		err = conn.Write(ctx, websocket.MessageText, []byte(r.Body))
	}
	for err == nil {
		var message io.Reader
		if _, message, err = conn.Reader(ctx); err == nil {
			_, err = io.Copy(o, message)
		}
	}
	switch code := websocket.CloseStatus(err); code {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusServiceRestart,
		websocket.StatusNoStatusRcvd:
	case -1:
		o.fail(ctx, err, NoClose)
	default:
		o.Failure, o.Detail = NoClose, fmt.Sprintf("close frame with code %d", code)
	}
}
