package pipe

import (
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// body is the body of a response, and the parts of which its content consists.
type body struct {
	http1.Body
	content  content             // finite: it is not looked at
	last     byte                // of the content, when it consists of lines
	messages grpc.Messages       // of gRPC-Web and Connect
	events   *eventstream.Stream // of an event stream
}

// advance follows the next bytes of the message.
func (b *body) advance(p []byte) (n int, done bool, err error) {
	if b.content == finite {
		return b.Advance(p, nil)
	}
	return b.Advance(p, b)
}

// Data follows the parts of the content.
func (b *body) Data(p []byte) {
	switch {
	case len(p) == 0:
	case b.content == events:
		b.events.Follow(p)
	case b.content == lines:
		b.last = p[len(p)-1]
	default:
		b.messages.Follow(p)
	}
}

// isWhole reports whether the last message of gRPC-Web or Connect has been sent.
func (b *body) isWhole() bool {
	flags := b.messages.Flags()
	return b.content == grpcWeb && flags&grpcWebTrailers != 0 || b.content == connectRPC && flags&connectEnd != 0
}

// earlyEnd is how a body is ended before its end.
type earlyEnd struct {
	bytes  []byte // what is sent last
	proper bool   // the body has a proper end with it; else the connection's end must not look like one
	ending string // for the report; "" when the client loses nothing
}

// earlyEnd decides how the body is ended where it stands. ok is false where that would
// cut a chunk, or one of the parts of which the body consists.
func (b *body) earlyEnd() (f earlyEnd, ok bool) {
	if b.Kind == http1.ChunkedBody && !b.AtChunkBoundary() {
		return f, false
	}
	var message []byte
	switch b.content {
	case finite:
		return f, false
	case events:
		if !b.events.BetweenEvents() {
			return f, false
		}
		end := b.events.Ending()
		message, f.proper, f.ending = end.Last, end.Proper, end.Name
	case lines:
		if b.last != 0 && b.last != '\n' {
			return f, false
		}
		f.proper = true
	default:
		if b.messages.Within() {
			return f, false
		}
		if f.proper = true; !b.isWhole() {
			message, f.ending = b.content.lastMessage(), b.content.ending()
		}
	}
	if b.Kind != http1.ChunkedBody {
		f.bytes = message
		return f, true
	}
	if len(message) > 0 {
		f.bytes = http1.AppendChunk(nil, message)
	}
	if f.proper {
		f.bytes = append(f.bytes, http1.LastChunk...)
	}
	return f, true
}
