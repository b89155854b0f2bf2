package pipe

import "strconv"

// note reads a body's data as far as its parts have to be known.
func (b *body) note(p []byte) {
	switch {
	case b.content == finite || len(p) == 0:
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

// farewell is how a body is ended before its end.
type farewell struct {
	bytes  []byte // what is sent last
	proper bool   // the body has a proper end with it; else the connection's end must not look like one
	ending string // for the report; "" when the client loses nothing
}

// farewell decides how the body is ended where it stands. ok is false where that would
// cut a chunk, or one of the parts of which the body consists.
func (b *body) farewell() (f farewell, ok bool) {
	if b.kind == chunkedBody && (b.state != chunkSize || b.seen != 0) {
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
	if b.kind != chunkedBody {
		f.bytes = message
		return f, true
	}
	if len(message) > 0 {
		f.bytes = append(strconv.AppendInt(nil, int64(len(message)), 16), "\r\n"...)
		f.bytes = append(append(f.bytes, message...), "\r\n"...)
	}
	if f.proper {
		f.bytes = append(f.bytes, "0\r\n\r\n"...)
	}
	return f, true
}
