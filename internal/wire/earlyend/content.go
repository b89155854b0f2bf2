package earlyend

import (
	"bytes"
	"fmt"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

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
