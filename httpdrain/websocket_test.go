package httpdrain

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
	"github.com/lastcall-dev/lastcall/internal/wire/ws/wstest"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"

// webSocketHandler is a WebSocket library: some write the response's head before Hijack, some after it;
// some return from the handler at once, and serve the connection in a goroutine of their own.
func webSocketHandler(headFirst, returns bool, send <-chan string, sent chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if headFirst {
			w.Header().Set("Connection", "upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
		nc, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		if !headFirst {
			_, _ = rw.WriteString(switching)
			_ = rw.Flush()
		}
		serve := func() {
			go func() {
				for part := range send {
					_, err := io.WriteString(nc, part)
					sent <- err
				}
			}()
			_, _ = rw.Reader.ReadByte() // the client's answer to the close frame, or its end
			_ = nc.Close()
		}
		if returns {
			go serve()
		} else {
			serve()
		}
	}
}

// At the last call a WebSocket's client gets a close frame after the message in progress, and nothing after it.
func TestWebSocket(t *testing.T) {
	for name, tt := range map[string]struct{ headFirst, returns, secure bool }{
		"the head after Hijack":               {},
		"the head before Hijack":              {headFirst: true},
		"the handler has returned":            {returns: true},
		"the head before Hijack, a goroutine": {headFirst: true, returns: true},
		"TLS":                                 {secure: true},
	} {
		for where, parts := range map[string][2]string{
			"between messages":   {wstest.Frame(0x81, "one"), ""},
			"within a frame":     {wstest.Frame(0x81, "one")[:3], wstest.Frame(0x81, "one")[3:]},
			"within a header":    {wstest.Frame(0x81, "one")[:1], wstest.Frame(0x81, "one")[1:]},
			"between fragments":  {wstest.Frame(0x01, "one"), "\x80\x03two"},
			"before any message": {"", ""},
		} {
			t.Run(name+"/"+where, func(t *testing.T) {
				send, sent := make(chan string), make(chan error)
				defer close(send)
				s := play(t, webSocketHandler(tt.headFirst, tt.returns, send, sent))
				address := s.plain
				if tt.secure {
					address = s.secure
				}
				nc := s.dial(t, address, tt.secure, "http/1.1")
				fmt.Fprint(nc, "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
				in := bufio.NewReader(nc)
				if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("%+v %v", resp, err)
				}
				send <- parts[0] // when the handler has called Hijack, which may follow the head
				must.Do(t, <-sent)
				_ = s.Drain(t.Context())
				open, err := s.LastCall(t.Context(), 0)
				if err != nil || len(open) != 1 || open[0] != (drain.Conversation{Peer: open[0].Peer, Protocol: "websocket", Request: "GET /chat", Age: open[0].Age, Ending: "close 1001"}) {
					t.Errorf("%+v %v", open, err)
				}
				if parts[1] != "" {
					send <- parts[1]
					must.Do(t, <-sent)
				}
				want := parts[0] + parts[1] + string(ws.AppendClose(nil, ws.CloseGoingAway, drain.MessageLastCall, false))
				got := make([]byte, len(want))
				if _, err := io.ReadFull(in, got); err != nil || string(got) != want {
					t.Errorf("got %q, %v; want %q", bytes.TrimRight(got, "\x00"), err, want)
				}
				send <- wstest.Frame(0x81, "too late")
				must.Do(t, <-sent)
				fmt.Fprint(nc, "\x88\x80\x00\x00\x00\x00") // the client's close frame
				if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
					t.Errorf("after the close frame: %q, %v", rest, err)
				}
				_ = nc.Close()
				must.Do(t, s.Close(t.Context()))
			})
		}
	}
}

// A message that does not end keeps no server from its end.
func TestWebSocketWithinAMessageForGood(t *testing.T) {
	t.Parallel()
	send, sent := make(chan string), make(chan error)
	defer close(send)
	s := play(t, webSocketHandler(false, false, send, sent))
	nc := s.dial(t, s.plain, false, "")
	fmt.Fprint(nc, "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	send <- wstest.Frame(0x81, "one")[:3]
	<-sent
	_ = s.Drain(t.Context())
	if _, err := s.LastCall(t.Context(), 0); err != nil {
		t.Error(err)
	}
	must.Do(t, s.Close(t.Context()))
	if got, err := io.ReadAll(nc); err != nil || string(got) != switching+wstest.Frame(0x81, "one")[:3] {
		t.Errorf("%q, %v", got, err)
	}
}
