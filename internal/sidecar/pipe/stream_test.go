package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

// chunk writes one chunk of a body.
func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// chunkedHead is a head of a chunked response, with a Content-Type and more.
func chunkedHead(contentType string) string {
	return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: " + contentType + "\r\n\r\n"
}

// How a stream ends at the last call depends on what it is, what it answers and
// where it stands: only what its client asks for again by itself, and what is
// complete, ends as if the app had ended it, and is not in the report.
func TestStreamsAtTheLastCall(t *testing.T) {
	t.Parallel()
	const (
		token     = `data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"word"}}]}` + "\n\n"
		openAI    = `data: {"error":{"message":"the server is shutting down","type":"server_error","param":null,"code":"server_shutting_down"}}` + "\n\n"
		start     = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
		anthropic = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"the server is shutting down\"}}\n\n"
		result    = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
	)
	const (
		message  = "\x00\x00\x00\x00\x05hello"
		trailers = "\x80\x00\x00\x00\x10grpc-status: 0\r\n"
	)
	unavailable := string(grpc.Append(nil, 0x80, []byte("grpc-status: 14\r\ngrpc-message: the server is shutting down\r\n")))
	grpcWeb := chunkedHead("application/grpc-web+proto")
	events := chunkedHead("text/event-stream; charset=utf-8")
	untilClose := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	for _, tt := range []struct {
		name          string
		method        string
		head          string
		before, after string
		body          string // what the client reads; N stands for a reconnection time
		ending        string // in the report; "": it has lost nothing, and sees a proper end
	}{
		{"between events", "GET", events, chunk("data: 1\n\n"), "", "data: 1\n\nretry: N\n\n", ""},
		{"between events, CRLF", "GET", events, chunk("data: 1\r\n\r\n"), "", "data: 1\r\n\r\nretry: N\n\n", ""},
		{"between events, CR", "GET", events, chunk("data: 1\r\r"), "", "data: 1\r\rretry: N\n\n", ""},
		{"an event in two chunks", "GET", events, chunk("data: 1\n") + chunk("\n"), "", "data: 1\n\nretry: N\n\n", ""},
		{"before the first event", "GET", events, chunk("\n\n"), "", "\n\nretry: N\n\n", ""},
		{"within an event that ends", "GET", events, chunk("data: 1\n"), chunk("\n"), "data: 1\n\nretry: N\n\n", ""},
		{"within a chunk that ends", "GET", events, "9\r\ndata:", " 1\n\n\r\n", "data: 1\n\nretry: N\n\n", ""},
		{"within an event that does not end", "GET", events, chunk("data: 1\n\ndata: 2\n"), "", "data: 1\n\ndata: 2\n", "truncated"},
		{"within a chunk that does not end", "GET", events, "ff\r\ndata: 1\n\n", "", "data: 1\n\n", "truncated"},
		{"until the end of the connection", "GET", untilClose, "data: 1\n\n", "", "data: 1\n\nretry: N\n\n", ""},
		{"until the end of the connection, within an event", "GET", untilClose, "data: 1\n", "", "data: 1\n", "truncated"},
		{"compressed events", "GET", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("zz\n\n"), "", "zz\n\n", "truncated"},
		{"events of known length", "GET", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\n", "data: 1\n\n", "", "data: 1\n\n", "truncated"},
		{"a failure, which no client asks for again", "GET", strings.Replace(events, "200 OK", "500 Oops", 1), chunk("data: 1\n\n"), "", "data: 1\n\n", "truncated"},
		{"an answer to a GET", "GET", events, chunk(token), "", token + openAI, "error event"},

		{"an answer of no known dialect", "POST", events, chunk("data: 1\n\n"), "", "data: 1\n\n", "truncated"},
		{"such an answer until the end of the connection", "POST", untilClose, "data: 1\n\n", "", "data: 1\n\n", "truncated"},
		{"OpenAI's", "POST", events, chunk(token), "", token + openAI, "error event"},
		{"OpenAI's until the end of the connection", "POST", untilClose, token, "", token + openAI, "error event"},
		{"OpenAI's, within a token", "POST", events, chunk(token + token[:30]), chunk(token[30:]), token + token + openAI, "error event"},
		{"OpenAI's, within one that does not end", "POST", events, chunk(token + token[:30]), "", token + token[:30], "truncated"},
		{"OpenAI's, complete", "POST", events, chunk(token + "data: [DONE]\n\n"), "", token + "data: [DONE]\n\n", ""},
		{"OpenAI's until the end of the connection, complete", "POST", untilClose, token + "data: [DONE]\n\n", "", token + "data: [DONE]\n\n", ""},
		{"Anthropic's", "POST", events, chunk(start), "", start + anthropic, "error event"},
		{"MCP's, complete", "POST", events, chunk(result), "", result, ""},

		{"an export", "GET", chunkedHead("application/x-ndjson"), chunk("{}\n"), "", "{}\n", "truncated"},
		{"lines that never end, as configured", "GET", chunkedHead("application/x-tail"), chunk("{}\n"), "", "{}\n", ""},
		{"such lines, within one", "GET", chunkedHead("application/x-tail"), chunk("{"), chunk("}\n"), "{}\n", ""},
		{"such lines that answer something", "POST", chunkedHead("application/x-tail"), chunk("{}\n"), "", "{}\n", "truncated"},
		{"any other body", "GET", chunkedHead("text/html"), chunk("<p>\n\n"), "", "<p>\n\n", "truncated"},
		{"one that ends by itself", "GET", events, chunk("data: 1\n"), chunk("data: 2") + "0\r\n\r\n", "data: 1\ndata: 2", ""},

		{"gRPC-Web, between messages", "GET", grpcWeb, chunk(message), "", message + unavailable, "grpc-status 14"},
		{"gRPC-Web, within a message that ends", "GET", grpcWeb, chunk(message[:7]), chunk(message[7:]), message + unavailable, "grpc-status 14"},
		{"gRPC-Web, within a prefix that ends", "GET", grpcWeb, chunk(message[:2]), chunk(message[2:]), message + unavailable, "grpc-status 14"},
		{"gRPC-Web, within a message that does not end", "GET", grpcWeb, chunk(message[:7]), "", message[:7], "truncated"},
		{"gRPC-Web, after the trailers", "GET", grpcWeb, chunk(message + trailers), "", message + trailers, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			app := startScripted(t, tt.head)
			p, c := startClient(t, app, HTTP, func(c *Config) { c.EndlessTypes = []string{"application/x-tail"} })
			c.send(tt.method + " /events HTTP/1.1\r\nHost: app\r\nContent-Length: 0\r\n\r\n")
			resp := c.head()
			app.send(tt.before)
			first := part(t, resp, 1)
			window := 50 * time.Millisecond
			if tt.after != "" {
				window = patience
			}
			report := lastCall(t, p, window)
			if tt.after != "" {
				awaitCloseRequested(t, p)
				app.send(tt.after)
			}
			rest, err := io.ReadAll(resp.Body)
			got := retryTime.ReplaceAllString(first+string(rest), "retry: N\n")
			if got != tt.body {
				t.Errorf("the client reads %q; want %q", got, tt.body)
			}
			switch proper := err == nil; {
			case proper != (tt.ending == "" || tt.ending == "grpc-status 14"):
				t.Errorf("the client sees the end as %v; the report as %q", err, tt.ending)
			case !proper && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("the client sees the end as %v", err)
			}
			wantEndings(t, report(), tt.ending)
			if !errors.Is(err, syscall.ECONNRESET) {
				c.wantEnd()
			}
			<-app.got
			closePipe(t, p)
		})
	}
}

// retryTime is the field with which a stream ends that its client connects to again.
var retryTime = regexp.MustCompile(`retry: [12]\d{3}\n`)

// A subscription ends early at the end of its event. What has an end of its own is waited for, whatever is configured for
// streams that have none.
func TestStreamCloseEarly(t *testing.T) {
	const token, done = `data: {"object":"chat.completion.chunk"}` + "\n\n", "data: [DONE]\n\n"
	for _, tt := range []struct{ name, method, before, after, rest string }{
		{"a subscription", "GET", "data: 1\n", chunk("data: 2\n\n"), "data: 2\n\nretry: N\n\n"},
		// In one piece: after [DONE] the pipe may end the stream of a GET itself.
		{"an answer to a GET", "GET", token, chunk(token) + chunk(done) + "0\r\n\r\n", token + done},
		{"an answer", "POST", token, chunk(token) + chunk(done) + "0\r\n\r\n", token + done},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app := startScripted(t, chunkedHead("text/event-stream"))
			p := startPipe(t, app, HTTP, func(c *Config) { c.EventStreams, c.EndlessTypes = CloseEarly, []string{"text/event-stream"} })
			c := dialPipe(t, p, tt.method+" /events HTTP/1.1\r\nHost: app\r\nContent-Length: 0\r\n\r\n")
			resp := c.head()
			app.send(chunk(tt.before))
			part(t, resp, len(tt.before))
			_ = p.Drain(ctx)
			_ = p.CloseIdle(ctx, 0)
			if tt.before != token {
				awaitCloseRequested(t, p)
			}
			app.send(tt.after)
			if b, err := io.ReadAll(resp.Body); err != nil || retryTime.ReplaceAllString(string(b), "retry: N\n") != tt.rest {
				t.Errorf("%q, %v", b, err)
			}
			awaitActivity(t, p, 0, 0)
			<-app.got
		})
	}
}

// A long poll of Engine.IO, begun before or after the others have been ended, ends as its server would end the session.
// Another GET that waits is waited for, and so is a poll unless polls end early.
func TestLongPolls(t *testing.T) {
	for _, tt := range []struct {
		target, body string
		when         LongLived
	}{
		{"/socket.io/?EIO=4&transport=polling&t=OxB&sid=abc", "1", CloseEarly},
		{"/engine.io/?token=" + strings.Repeat("x", 2*maxLine) + "&EIO=3&transport=polling&sid=abc", "1:1", CloseEarly},
		{"/socket.io/?EIO=4&transport=polling&t=OxB&sid=abc", "done", Wait},
		{"/socket.io/?EIO=4&transport=polling", "done", CloseEarly},           // a new session
		{"/socket.io/?EIO=5&transport=polling&sid=abc", "done", CloseEarly},   // not known
		{"/socket.io/?EIO=4&transport=websocket&sid=abc", "done", CloseEarly}, // refused or an upgrade
		{"/a?sid=abc&transport=polling", "done", CloseEarly},
	} {
		t.Run(tt.target[:12]+tt.body, func(t *testing.T) {
			g := startGate(t)
			p := startPipe(t, g, HTTP, func(c *Config) { c.EventStreams, c.Spread = tt.when, time.Millisecond })
			before := dialPipe(t, p, get(tt.target))
			<-g.requests
			_ = p.Drain(ctx)
			_ = p.CloseIdle(ctx, 0)
			after := dialPipe(t, p, get(tt.target))
			<-g.requests
			if tt.body == "done" {
				g.open()
			}
			for _, c := range []*client{before, after} {
				resp := c.head()
				if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !resp.Close || string(b) != tt.body {
					t.Errorf("%d, %v, %q, %v; want %q", resp.StatusCode, resp.Close, b, err, tt.body)
				}
				c.wantEnd()
			}
			awaitActivity(t, p, 0, 0)
		})
	}
}

// A stream that begins when the others have been ended ends as early.
func TestLateStreamCloseEarly(t *testing.T) {
	app := startScripted(t, chunkedHead("text/event-stream"))
	p := startPipe(t, app, HTTP, func(c *Config) { c.EventStreams = CloseEarly })
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	c := dialPipe(t, p, get("/events"))
	resp := c.head()
	if b, err := io.ReadAll(resp.Body); err != nil || retryTime.ReplaceAllString(string(b), "") != "\n" {
		t.Errorf("%q, %v", b, err)
	}
	awaitActivity(t, p, 0, 0)
	<-app.got
}

// The endings are spread over a part of the window, at even distances, the oldest
// first.
func TestSpread(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, tt := range []struct {
		n                 int
		set, window, want time.Duration // at the last call
		early, wantEarly  time.Duration
	}{
		{100, 0, s, 500 * ms, 0, s},
		{5000, 0, s, 750 * ms, 0, s},
		{100, 0, s, 500 * ms, 18 * s, s},
		{5000, 0, s, 750 * ms, 18 * s, 10 * s},
		{100, 200 * ms, s, 200 * ms, 18 * s, 200 * ms},
		{5000, 3 * s, s, 750 * ms, 18 * s, 3 * s},
		{100, time.Minute, s, 750 * ms, 18 * s, time.Minute},
	} {
		e := Endings{Spread: tt.set, EarlyTime: tt.early}
		if got, early := e.spread(tt.n, tt.window), e.earlySpread(tt.n); got != tt.want || early != tt.wantEarly {
			t.Errorf("%+v: %v in the window, %v early", tt, got, early)
		}
	}
}

// A stream of gRPC-Web or of the Connect protocol that is not finished ends with
// UNAVAILABLE, so that its client tries again, in between two messages.
func TestConnectRPC(t *testing.T) {
	type text = wrapperspb.StringValue
	const procedure = "/chat.Chat/Listen"
	for _, tt := range []struct {
		name    string
		options []connect.ClientOption
		ending  string
	}{
		{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}, "grpc-status 14"},
		{"Connect", nil, "unavailable"},
		{"Connect, JSON", []connect.ClientOption{connect.WithProtoJSON()}, "unavailable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			handler := connect.NewServerStreamHandler(procedure, func(ctx context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
				for _, word := range []string{"hello ", r.Msg.Value} {
					if err := s.Send(wrapperspb.String(word)); err != nil {
						return err
					}
				}
				<-ctx.Done() // it would continue
				return ctx.Err()
			})
			p := startPipe(t, startHTTP(t, handler.ServeHTTP), HTTP)
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := connect.NewClient[text, text](&http.Client{Transport: transport}, "http://"+p.Addr(0).String()+procedure, tt.options...)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			stream, err := client.CallServerStream(ctx, connect.NewRequest(wrapperspb.String("world")))
			must.Do(t, err)
			defer stream.Close()
			got := ""
			for got != "hello world" && stream.Receive() {
				got += stream.Msg().Value
			}
			if got != "hello world" {
				t.Fatalf("%q, %v", got, stream.Err())
			}
			report := lastCall(t, p, patience)
			if stream.Receive() {
				t.Errorf("a message too many: %v", stream.Msg())
			}
			var e *connect.Error
			err = stream.Err()
			if !errors.As(err, &e) || e.Code() != connect.CodeUnavailable || e.Message() != drain.MessageLastCall {
				t.Errorf("the client sees %v", err)
			}
			wantEndings(t, report(), tt.ending)
		})
	}
}
