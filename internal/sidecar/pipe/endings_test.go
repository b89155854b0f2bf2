package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
	"github.com/lastcall-dev/lastcall/internal/wire/ws/wstest"
)

// realClients print the status, the body as it comes, and how it ended.
var realClients = map[string]struct {
	peer string // the program that it needs
	run  func(program, url string, out io.Writer)
}{
	"net/http": {run: func(_, url string, out io.Writer) {
		c := http.Client{Transport: &http.Transport{}}
		defer c.CloseIdleConnections()
		resp, err := c.Get(url)
		if err == nil {
			fmt.Fprintln(out, resp.StatusCode)
			_, err = io.Copy(out, resp.Body)
			_ = resp.Body.Close()
		}
		for err != nil && errors.Unwrap(err) != nil {
			err = errors.Unwrap(err)
		}
		fmt.Fprintf(out, "\n%v\n", err)
	}},
	"curl": {"curl", func(program, url string, out io.Writer) {
		cmd := exec.Command(program, "-sN", "-o", "-", "-w", `\n%{http_code} %{exitcode}\n`, url)
		cmd.Stdout, cmd.Stderr = out, out
		_ = cmd.Run() // the exit code is in what it says
	}},
	"requests":   {"python", python("requests")},
	"httpx":      {"python", python("httpx")},
	"websockets": {"python", python("websockets")},
	"coder/websocket": {run: func(_, url string, out io.Writer) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ws, _, err := websocket.Dial(ctx, url, nil)
		if err == nil {
			fmt.Fprintln(out, 101)
			defer ws.CloseNow()
		}
		for err == nil {
			var b []byte
			if _, b, err = ws.Read(ctx); err == nil {
				_, _ = out.Write(b)
			}
		}
		var e websocket.CloseError
		if errors.As(err, &e) {
			fmt.Fprintf(out, "\n%d %s\n", e.Code, e.Reason)
			return
		}
		for errors.Unwrap(err) != nil {
			err = errors.Unwrap(err)
		}
		fmt.Fprintf(out, "\n%v\n", err)
	}},
}

func python(library string) func(program, url string, out io.Writer) {
	return func(program, url string, out io.Writer) {
		cmd := exec.Command(program, "testdata/client.py", library, url)
		cmd.Stdout, cmd.Stderr = out, out
		_ = cmd.Run()
	}
}

// What the user's code sees at the last call, in every state of a conversation:
// the table of docs/endings.md, row by row.
func TestEndingsByRealClients(t *testing.T) {
	const says503 = "503\nthe server is shutting down and the request was not finished before its deadline\n"
	type sees map[string]string // by client
	for _, tt := range []struct {
		name, head, sent string
		until            string // what the client must have before; empty: the app has the request
		options          func(*Config)
		sees             sees
	}{
		{name: "no response yet", sees: sees{
			"net/http": says503 + "<nil>\n",
			"curl":     strings.TrimPrefix(says503, "503\n") + "503 0\n",
			"requests": says503 + "clean\n",
			"httpx":    says503 + "clean\n",
		}},
		{name: "within a body of known length", head: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", sent: "half", until: "half", sees: sees{
			"net/http": "200\nhalf\nunexpected EOF\n",
			"curl":     "half\n200 18\n", // CURLE_PARTIAL_FILE
			"requests": "200\nhalf\nChunkedEncodingError\n",
			"httpx":    "200\nhalf\nRemoteProtocolError\n",
		}},
		{name: "within a chunked body", head: chunkedHead("text/plain"), sent: chunk("half"), until: "half", sees: sees{
			"net/http": "200\nhalf\nunexpected EOF\n",
			"curl":     "half\n200 18\n",
			"requests": "200\nhalf\nChunkedEncodingError\n",
			"httpx":    "200\nhalf\nRemoteProtocolError\n",
		}},
		{name: "within a body until the end of the connection", head: "HTTP/1.1 200 OK\r\n\r\n", sent: "half", until: "half", sees: sees{
			"net/http": "200\nhalf\nconnection reset by peer\n",
			"curl":     "half\n200 56\n", // CURLE_RECV_ERROR
			"requests": "200\nhalf\nChunkedEncodingError\n",
			"httpx":    "200\nhalf\nReadError\n",
		}},
		{name: "an event stream in between events", head: chunkedHead("text/event-stream"), sent: chunk("data: 1\n\n"), until: "data: 1", sees: sees{
			"net/http": "200\ndata: 1\n\nretry: N\n\n\n<nil>\n",
			"curl":     "data: 1\n\nretry: N\n\n\n200 0\n",
			"requests": "200\ndata: 1\n\nretry: N\n\n\nclean\n",
			"httpx":    "200\ndata: 1\n\nretry: N\n\n\nclean\n",
		}},
		{name: "an event stream within an event", head: chunkedHead("text/event-stream"), sent: chunk("data: 1"), until: "data: 1", sees: sees{
			"net/http": "200\ndata: 1\nunexpected EOF\n",
			"curl":     "data: 1\n200 18\n",
			"requests": "200\ndata: 1\nChunkedEncodingError\n",
			"httpx":    "200\ndata: 1\nRemoteProtocolError\n",
		}},
		{name: "events until the end of the connection", head: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", sent: "data: 1\n\n", until: "data: 1", sees: sees{
			"net/http": "200\ndata: 1\n\nretry: N\n\n\n<nil>\n",
			"curl":     "data: 1\n\nretry: N\n\n\n200 0\n",
		}},
		{name: "lines of an export", head: chunkedHead("application/x-ndjson"), sent: chunk("{}\n"), until: "{}", sees: sees{
			"net/http": "200\n{}\n\nunexpected EOF\n",
			"requests": "200\n{}\n\nChunkedEncodingError\n",
		}},
		{name: "lines without an end", head: chunkedHead("application/x-ndjson"), sent: chunk("{}\n"), until: "{}",
			options: func(c *Config) { c.EndlessTypes = []string{"application/x-ndjson"} }, sees: sees{
				"net/http": "200\n{}\n\n<nil>\n",
				"requests": "200\n{}\n\nclean\n",
			}},
		{name: "a WebSocket in between messages", head: "ws", sent: wstest.Frame(0x81, "hello"), until: "hello", sees: sees{
			"coder/websocket": "101\nhello\n1001 the server is shutting down\n",
			"websockets":      "101\nhello\n1001 the server is shutting down\nConnectionClosedOK\n",
		}},
		{name: "a WebSocket, to come again", head: "ws", sent: wstest.Frame(0x81, "hello"), until: "hello",
			options: func(c *Config) { c.WebSocketCode = ws.CloseServiceRestart }, sees: sees{
				"coder/websocket": "101\nhello\n1012 the server is shutting down\n",
				"websockets":      "101\nhello\n1012 the server is shutting down\nConnectionClosedError\n",
			}},
		{name: "a WebSocket within a message", head: "ws", sent: wstest.Frame(0x81, "hello") + wstest.Frame(0x01, "he"), until: "hello", sees: sees{
			"coder/websocket": "101\nhello\n1001 the server is shutting down\n",
			"websockets":      "101\nhello\n1001 the server is shutting down\nConnectionClosedError\n",
		}},
		{name: "a WebSocket within a frame", head: "ws", sent: wstest.Frame(0x81, "hello") + "\x81\x05he", until: "hello", sees: sees{
			"coder/websocket": "101\nhello\nunexpected EOF\n",
			"websockets":      "101\nhello\n1006 \nConnectionClosedError\n",
		}},
	} {
		for name, want := range tt.sees {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				t.Parallel()
				c, program := realClients[name], ""
				if c.peer != "" {
					program = peers.Need(t, c.peer)
				}
				inFlight := make(chan struct{})
				app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
					head := tt.head
					if head == "ws" {
						head = switching[:len(switching)-2] + "Sec-WebSocket-Accept: " + acceptKey(r.Header.Get("Sec-WebSocket-Key")) + "\r\n\r\n"
					}
					conn, _, err := w.(http.Hijacker).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_, _ = io.WriteString(conn, head+tt.sent)
					close(inFlight)
					_ = conn.SetReadDeadline(time.Now().Add(patience))
					_, _ = io.Copy(io.Discard, conn)
				})
				var options []func(*Config)
				if tt.options != nil {
					options = append(options, tt.options)
				}
				p := startPipe(t, app, HTTP, options...)
				scheme := "http://"
				if tt.head == "ws" {
					scheme = "ws://"
				}
				var out logstest.Buffer
				done := make(chan struct{})
				go func() { defer close(done); c.run(program, scheme+p.Addr(0).String()+"/", &out) }()
				polltest.Eventually(t, "the program has shown the messages before the end", func() bool {
					select {
					case <-inFlight:
						return strings.Contains(out.String(), tt.until)
					case <-done:
						return true
					default:
						return false
					}
				})
				if _, err := p.LastCall(ctx, 50*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				<-done
				if got := retryTime.ReplaceAllString(out.String(), "retry: N\n"); got != want {
					t.Errorf("the user's code sees\n%q; want\n%q", got, want)
				}
			})
		}
	}
}
