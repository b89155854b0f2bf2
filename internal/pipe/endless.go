package pipe

import (
	"bytes"
	"encoding/binary"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// content says of what parts a response's body consists, for those in between
// which it may be ended: because it has no end of its own, or because its protocol
// has a word for an end that was not meant.
type content uint8

const (
	finite     content = iota // every end but its own is a loss
	events                    // an event stream
	lines                     // lines that never end, as configured
	grpcWeb                   // messages of gRPC, then trailers as one more message
	connectRPC                // messages of the Connect protocol, then its end as one more
)

// ending is what the report calls our last message.
func (c content) ending() string {
	if c == grpcWeb {
		return "grpc-status " + grpc.Unavailable
	}
	return "unavailable"
}

// Flags of the message that is a body's last one.
const (
	grpcWebTrailers = 0x80 // PROTOCOL-WEB.md
	connectEnd      = 0x02 // connectrpc.com/docs/protocol
)

// lastMessage is the message with which the protocol ends a call that was not
// finished: UNAVAILABLE, so that clients may try again.
func (c content) lastMessage() []byte {
	flags, text := byte(grpcWebTrailers), "grpc-status: "+grpc.Unavailable+"\r\ngrpc-message: "+accesslog.MessageLastCall+"\r\n"
	if c == connectRPC {
		flags, text = connectEnd, `{"error":{"code":"unavailable","message":"`+accesslog.MessageLastCall+`"}}`
	}
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text))), text...)
}

// isGet reports whether the request is a GET: of those clients that reconnect by
// themselves, all send one.
func (r *request) isGet() bool { return bytes.HasPrefix(r.line, []byte("GET ")) }

// contentOf reads a Content-Type. A body of lines may be a log that is followed, or
// an export or a model's answer, which a proper end before its own would falsify:
// only the configuration can tell, and only a GET follows anything.
func (e *Endings) contentOf(h *http1.Head, req *request) content {
	if h.IsEncoded { // between which bytes an event ends cannot be seen
		return finite
	}
	media := http1.MediaType(h.ContentType)
	switch kind, _, _ := bytes.Cut(media, []byte("+")); {
	case isEventStream(h.ContentType):
		return events
	case http1.EqualFold(kind, "application/grpc-web"): // -text is base64, in pieces of its own
		return grpcWeb
	case http1.EqualFold(kind, "application/connect"):
		return connectRPC
	}
	for _, endless := range e.EndlessTypes {
		if http1.EqualFold(media, endless) && req.isGet() {
			return lines
		}
	}
	return finite
}

func isEventStream(contentType []byte) bool {
	return http1.EqualFold(http1.MediaType(contentType), eventstream.MediaType)
}
