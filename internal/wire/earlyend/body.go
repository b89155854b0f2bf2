// Package earlyend decides how a proxy may end the body of an HTTP/1 response before the app does. A body may end only
// between two units of its content, such as events or messages. It ends properly only if its client loses nothing, or
// if its protocol has a message for a call that failed. Every other body is truncated: its client can see that it is
// incomplete.
package earlyend

import (
	"bytes"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// Body follows the body of a response, and the units of its content.
type Body struct {
	http1.Body
	content  Content
	last     byte                // last byte of Lines
	messages grpc.Messages       // of GRPCWeb and Connect
	events   *eventstream.Stream // of Events and JSONLines
}

// New follows a body from its first byte. isSubscription is true for a response with status 200 to a GET.
func New(body http1.Body, content Content, isSubscription bool) Body {
	b := Body{Body: body, content: content}
	switch content {
	case Events:
		b.events = eventstream.Follow(eventstream.Events, isSubscription)
	case JSONLines:
		b.events = eventstream.Follow(eventstream.JSONLines, isSubscription)
	}
	return b
}

// Content returns the kind of content.
func (b *Body) Content() Content { return b.content }

// Advance takes the next bytes of the message, as http1.Body does.
func (b *Body) Advance(p []byte) (n int, done bool, err error) {
	if b.content == Unknown {
		return b.Body.Advance(p, nil)
	}
	return b.Body.Advance(p, b)
}

// Data implements http1.DataSink.
func (b *Body) Data(p []byte) {
	switch {
	case len(p) == 0:
	case b.events != nil:
		b.events.Follow(p)
	case b.content == Lines:
		b.last = p[len(p)-1]
	default:
		b.messages.Follow(p)
	}
}

// SpreadRetries does nothing unless the body is an event stream (eventstream.Stream.SpreadRetries).
func (b *Body) SpreadRetries(over time.Duration) {
	if b.events != nil {
		b.events.SpreadRetries(over)
	}
}

// End returns how the body can end now: Last has its framing, and unless the ending is Proper, the end of the
// connection must not look like the body's. ok is false within a unit or a chunk.
func (b *Body) End() (end eventstream.Ending, ok bool) {
	if b.Kind == http1.ChunkedBody && !b.AtChunkBoundary() || !b.betweenUnits() {
		return end, false
	}
	switch b.content {
	case Events, JSONLines:
		end = b.events.Ending()
	case Lines:
		end.Proper = true
	default:
		last := connectEnd
		if b.content == GRPCWeb {
			last = grpcWebTrailers
		}
		if end.Proper = true; int(b.messages.Flags())&last == 0 { // the last message has not been sent
			end.Last, end.Name = b.content.failure()
		}
	}
	if b.Kind != http1.ChunkedBody {
		return end, true
	}
	if len(end.Last) > 0 {
		end.Last = http1.AppendChunk(nil, end.Last)
	}
	if end.Proper {
		end.Last = append(end.Last, http1.LastChunk...)
	}
	return end, true
}

func (b *Body) betweenUnits() bool {
	switch b.content {
	case Unknown:
		return false
	case Events, JSONLines:
		return b.events.BetweenEvents()
	case Lines:
		return b.last == 0 || b.last == '\n'
	}
	return !b.messages.Within()
}

// Content is the kind of a body's content, by the units between which the body may end.
type Content uint8

// Kinds of content.
const (
	Unknown   Content = iota // the body may not be ended early
	Events                   // an event stream
	Lines                    // lines without an end, as configured
	JSONLines                // lines with an end, as Ollama's
	GRPCWeb                  // messages of gRPC, then trailers as one more message
	Connect                  // messages of the Connect protocol, then its end as one more
)

// ContentOf returns the kind of a response's content by its Content-Type. endlessTypes are the media types of Lines. A
// body of lines may be a log that a client follows, or an export that an early end would falsify: only the
// configuration can distinguish them, and only a GET follows a log.
func ContentOf(h *http1.Head, isGET bool, endlessTypes []string) Content {
	if h.IsEncoded { // events in compressed data cannot be found
		return Unknown
	}
	media, followed := http1.MediaType(h.ContentType), eventstream.MediaOf(h.ContentType, isGET)
	switch kind, _, _ := bytes.Cut(media, []byte("+")); {
	case followed == eventstream.Events:
		return Events
	case http1.EqualFold(kind, "application/grpc-web"): // not -text, which is base64
		return GRPCWeb
	case http1.EqualFold(kind, "application/connect"):
		return Connect
	}
	for _, endless := range endlessTypes {
		if http1.EqualFold(media, endless) && isGET {
			return Lines
		}
	}
	if followed == eventstream.JSONLines {
		return JSONLines
	}
	return Unknown
}

// Flags of the last message of a body.
const (
	grpcWebTrailers = 0x80 // PROTOCOL-WEB.md
	connectEnd      = 0x02 // connectrpc.com/docs/protocol
)

// failure returns the message that ends a call, and its name for reports.
func (c Content) failure() (last []byte, name string) {
	end := grpc.Unavailable
	if c == Connect {
		last = fmt.Appendf(nil, `{"error":{"code":%q,"message":%q}}`, end.Name, end.Message)
		return grpc.Append(nil, connectEnd, last), drain.EndingConnect
	}
	for _, field := range end.Trailers() {
		last = fmt.Appendf(last, "%s: %s\r\n", field[0], field[1])
	}
	return grpc.Append(nil, grpcWebTrailers, last), drain.EndingGRPC
}
