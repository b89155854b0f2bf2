package pipe

import (
	"bytes"
	"encoding/binary"

	"github.com/lastcall-dev/lastcall/internal/pipe/grpcframe"
)

// content says of what parts a response's body consists, for those in between
// which it may be ended: because it has no end of its own, or because its protocol
// has a word for an end that was not meant.
type content uint8

const (
	finite      content = iota // every end but its own is a loss
	eventStream                // events, each ended by an empty line
	lines                      // lines
	grpcWeb                    // messages of gRPC, then trailers as one more message
	connectRPC                 // messages of the Connect protocol, then its end as one more
)

// isEndless says whether the body has no end of its own.
func (c content) isEndless() bool { return c == eventStream || c == lines }

// hasEnvelopes says whether the parts are messages behind five bytes: flags, and
// the length.
func (c content) hasEnvelopes() bool { return c == grpcWeb || c == connectRPC }

// ending is what the report calls an end of ours.
func (c content) ending() string {
	switch c {
	case grpcWeb:
		return "grpc-status " + grpcframe.Unavailable
	case connectRPC:
		return "unavailable"
	}
	return "ended"
}

// Flags of the message that is a body's last one.
const (
	grpcWebTrailers = 0x80 // PROTOCOL-WEB.md
	connectEnd      = 0x02 // connectrpc.com/docs/protocol
)

// lastMessage is the message with which the protocol ends a call that was not
// finished: UNAVAILABLE, so that clients may try again.
func (c content) lastMessage() []byte {
	flags, text := byte(grpcWebTrailers), "grpc-status: "+grpcframe.Unavailable+"\r\ngrpc-message: "+endLastCall.message+"\r\n"
	if c == connectRPC {
		flags, text = connectEnd, `{"error":{"code":"unavailable","message":"`+endLastCall.message+`"}}`
	}
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text))), text...)
}

// contentOf reads a Content-Type. Only of an event stream is it certain that its
// end means nothing: clients connect again, whatever it was (HTML, 9.2.3). A body
// of lines may be a tail that is followed for ever, or an export, which a silent
// end would falsify: the configuration has to say it.
func (e *Endings) contentOf(h *head) content {
	if h.encoded { // between which bytes an event ends cannot be seen
		return finite
	}
	media, _, _ := bytes.Cut(h.contentType, []byte(";"))
	media = trim(media)
	switch kind, _, _ := bytes.Cut(media, []byte("+")); {
	case equalFold(media, "text/event-stream"):
		return eventStream
	case equalFold(kind, "application/grpc-web"): // -text is base64, in pieces of its own
		return grpcWeb
	case equalFold(kind, "application/connect"):
		return connectRPC
	}
	for _, endless := range e.EndlessTypes {
		if equalFold(media, endless) {
			return lines
		}
	}
	return finite
}

// endsWith says whether a part ends with these last four bytes of data. 0 is
// nothing at all.
func (c content) endsWith(tail uint32) bool {
	if tail == 0 {
		return c != finite
	}
	last, before, third := byte(tail), byte(tail>>8), byte(tail>>16)
	switch c {
	case lines:
		return last == '\n'
	case eventStream: // lines end with CR, LF or CRLF
		switch {
		case last == '\n' && before == '\r':
			return third == '\n' || third == '\r'
		case last == '\n':
			return before == '\n'
		case last == '\r':
			return before == '\n' || before == '\r'
		}
	}
	return false
}
