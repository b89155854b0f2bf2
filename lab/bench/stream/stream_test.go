package stream

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs the app and returns its port.
func serve(t *testing.T) int {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = listener.Close()
	})
	return listener.Addr().(*net.TCPAddr).Port
}

func TestTokensComeAtTheirRate(t *testing.T) {
	c, err := Open(t.Context(), Options{Port: serve(t), Kinds: []Kind{SSE, WebSocket}, Streams: 10, Every: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Run(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	// Each of those that were due counts: those that an overloaded machine has delayed come all at once.
	if want := int(r.Took.Seconds() * 10 / 0.01); len(r.Lateness) < want*9/10 || len(r.Lateness) > want*11/10 {
		t.Errorf("%d tokens in %s; want about %d", len(r.Lateness), r.Took, want)
	}
	if r.Lateness[0] < 0 || r.Percentile(50) > r.Percentile(99) {
		t.Errorf("earliest %s, p50 %s, p99 %s", r.Lateness[0], r.Percentile(50), r.Percentile(99))
	}
}

// token is a token as the app sends it.
func token(k Kind, number int64, due time.Time) string {
	message, at := k.message()
	putDigits(message[at+numberAt:at+numberAt+numbers], number)
	putDigits(message[at+dueAt:at+dueAt+dues], due.UnixNano())
	return string(message)
}

const (
	headSSE = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	headWS  = "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)

// Whatever the pieces in which the bytes come, the end of a stream is judged in the same way.
func TestEnds(t *testing.T) {
	now := time.Now()
	event := fmt.Sprintf("data: %s\n\n", token(WebSocket, 0, now)[4:])
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	closeFrame := "\x88\x02\x03\xe9"
	for _, row := range []struct {
		name, sent string
		kind       Kind
		fails      string // empty: a proper end
		tokens     int64
	}{
		{"SSE, last chunk", headSSE + chunk(event) + chunk("retry: 1000\n\n") + "0\r\n\r\n", SSE, "", 1},
		{"SSE, in other chunks", headSSE + chunk(event[:20]) + chunk(event[20:]+"retry: 1000\n\n") + "0\r\n\r\n", SSE, "", 1},
		{"SSE, no last chunk", headSSE + chunk(event), SSE, "unexpected EOF", 1},
		{"SSE, last chunk within an event", headSSE + chunk(event[:50]) + "0\r\n\r\n", SSE, "within an event", 0},
		{"SSE, a token lacks", headSSE + token(SSE, 1, now), SSE, "token 1 where 0 is next", 0},
		{"SSE, bytes after the end", headSSE + "0\r\n\r\n0\r\n\r\n", SSE, "after the end", 0},
		{"SSE, refused", "HTTP/1.1 503 Service Unavailable\r\n\r\n", SSE, "503", 0},
		{"WebSocket, close frame", headWS + token(WebSocket, 0, now) + closeFrame, WebSocket, "", 1},
		{"WebSocket, no close frame", headWS + token(WebSocket, 0, now), WebSocket, "unexpected EOF", 1},
		{"WebSocket, within a message", headWS + token(WebSocket, 0, now)[:40] + closeFrame, WebSocket, "unexpected EOF", 0},
		{"WebSocket, refused", "HTTP/1.1 503 Service Unavailable\r\n\r\n", WebSocket, "503", 0},
	} {
		for size := 1; size <= len(row.sent); size += 1 + size/3 {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := &stream{kind: row.kind, fd: fds[0]}
			var failed error
			for rest := row.sent; rest != "" && failed == nil; rest = rest[min(size, len(rest)):] {
				failed = s.feed([]byte(rest[:min(size, len(rest))]), now, func(*stream, time.Duration) {})
			}
			s.close(now, failed)
			_ = unix.Close(fds[1])
			if s.next != row.tokens || s.end.Proper != (row.fails == "") || !s.end.Proper && !strings.Contains(s.end.Err.Error(), row.fails) {
				t.Errorf("%s, pieces of %d: %d tokens, %+v", row.name, size, s.next, s.end)
			}
			if wants := row.kind == SSE && strings.Contains(row.sent, "retry"); s.end.Retry != wants || row.kind == WebSocket && s.end.Proper && s.end.Code != 1001 {
				t.Errorf("%s: %+v", row.name, s.end)
			}
		}
	}
}

func TestWatchReportsEachEnd(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	opened := make(chan struct{})
	go func() { // the first stream ends as it should, the second is cut, the third stays
		var conns []net.Conn
		for range 3 {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			conns = append(conns, conn)
			_, _ = conn.Read(make([]byte, 1<<10)) // a close with unread bytes would be a reset
			_, _ = conn.Write([]byte(headSSE + token(SSE, 0, time.Now())))
		}
		<-opened
		_, _ = conns[0].Write([]byte("0\r\n\r\n"))
		_ = conns[0].Close()
		_ = conns[1].Close()
		<-t.Context().Done()
	}()
	c, err := Open(t.Context(), Options{Port: listener.Addr().(*net.TCPAddr).Port, Kinds: []Kind{SSE}, Streams: 3, Every: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	close(opened)
	ends, err := c.Watch(t.Context(), time.Now().Add(100*time.Millisecond))
	if err != nil || len(ends) != 3 || !ends[0].Proper || ends[1].Proper || !ends[2].At.IsZero() {
		t.Errorf("%+v, %v", ends, err)
	}
}
