package earlyend

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

func head(t *testing.T, fields string) http1.Head {
	t.Helper()
	h, err := http1.ParseResponse([]byte("HTTP/1.1 200 OK\r\n" + fields + "\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestContentOf(t *testing.T) {
	endless := []string{"application/x-tail"}
	for _, tt := range []struct {
		name, fields string
		isGET        bool
		want         Content
	}{
		{"events", "Content-Type: Text/Event-Stream; charset=utf-8", false, Events},
		{"compressed events", "Content-Type: text/event-stream\r\nContent-Encoding: gzip", true, Unknown},
		{"events with the identity coding", "Content-Type: text/event-stream\r\nContent-Encoding: identity", true, Events},
		{"lines", "Content-Type: application/x-tail", true, Lines},
		{"lines for a POST", "Content-Type: application/x-tail", false, Unknown},
		{"JSON lines", "Content-Type: application/x-ndjson", false, JSONLines},
		{"JSON lines for a GET", "Content-Type: application/x-ndjson", true, Unknown},
		{"gRPC-Web", "Content-Type: application/grpc-web+proto", false, GRPCWeb},
		{"gRPC-Web in base64", "Content-Type: application/grpc-web-text", false, Unknown},
		{"Connect", "Content-Type: application/connect+json", false, Connect},
		{"none", "Server: x", true, Unknown},
	} {
		h := head(t, tt.fields)
		if got := ContentOf(&h, tt.isGET, endless); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestEnd(t *testing.T) {
	message := string(grpc.Append(nil, 0, []byte("hello")))
	trailers := "grpc-status: 14\r\ngrpc-message: the server is shutting down\r\n"
	trailers = string(grpc.Append(nil, 0x80, []byte(trailers)))
	connected := `{"error":{"code":"unavailable","message":"the server is shutting down"}}`
	connected = string(grpc.Append(nil, 2, []byte(connected)))
	chunk := func(s string) string { return string(http1.AppendChunk(nil, []byte(s))) }
	for _, tt := range []struct {
		name    string
		content Content
		kind    http1.BodyKind
		sent    string
		ok      bool
		want    eventstream.Ending
	}{
		{"unknown content", Unknown, http1.ChunkedBody, chunk("x"), false, eventstream.Ending{}},
		{"within a chunk", Lines, http1.ChunkedBody, "4\r\n{}", false, eventstream.Ending{}},
		{"within a line", Lines, http1.ChunkedBody, chunk("{"), false, eventstream.Ending{}},
		{"no line yet", Lines, http1.ChunkedBody, "", true, eventstream.Ending{Last: []byte(http1.LastChunk), Proper: true}},
		{"between lines", Lines, http1.ChunkedBody, chunk("{}\n"), true, eventstream.Ending{Last: []byte(http1.LastChunk), Proper: true}},
		{"between lines, without chunks", Lines, http1.CloseBody, "{}\n", true, eventstream.Ending{Proper: true}},
		{"within an event", Events, http1.ChunkedBody, chunk("data: 1\n"), false, eventstream.Ending{}},
		{"between events of no dialect", Events, http1.ChunkedBody, chunk("data: 1\n\n"), true, eventstream.Ending{Name: "truncated"}},
		{"a complete stream", Events, http1.ChunkedBody, chunk("data: [DONE]\n\n"), true, eventstream.Ending{Last: []byte(http1.LastChunk), Proper: true}},
		{"within a message", GRPCWeb, http1.ChunkedBody, chunk(message[:7]), false, eventstream.Ending{}},
		{"between messages", GRPCWeb, http1.ChunkedBody, chunk(message), true, eventstream.Ending{Last: []byte(chunk(trailers) + http1.LastChunk), Proper: true, Name: "grpc-status 14"}},
		{"after the trailers", GRPCWeb, http1.ChunkedBody, chunk(message + trailers), true, eventstream.Ending{Last: []byte(http1.LastChunk), Proper: true}},
		{"Connect", Connect, http1.CloseBody, message, true, eventstream.Ending{Last: []byte(connected), Proper: true, Name: "unavailable"}},
		{"Connect, complete", Connect, http1.CloseBody, message + connected, true, eventstream.Ending{Proper: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, step := range []int{1, 3, 1000} {
				b := New(http1.Body{Kind: tt.kind}, tt.content, false)
				for p := []byte(tt.sent); len(p) > 0; {
					n, done, err := b.Advance(p[:min(step, len(p))])
					if err != nil || done || n == 0 {
						t.Fatal(n, done, err)
					}
					p = p[n:]
				}
				end, ok := b.End()
				if ok != tt.ok || string(end.Last) != string(tt.want.Last) || end.Proper != tt.want.Proper || end.Name != tt.want.Name {
					t.Errorf("in pieces of %d bytes: %q %+v, %v; want %q %+v, %v", step, end.Last, end, ok, tt.want.Last, tt.want, tt.ok)
				}
			}
		})
	}
}
