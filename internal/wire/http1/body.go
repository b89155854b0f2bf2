package http1

// BodyKind is how the end of a message body is found (RFC 9112, 6.3).
type BodyKind uint8

// Kinds of bodies.
const (
	NoBody      BodyKind = iota
	LengthBody           // after Content-Length bytes
	ChunkedBody          // with the last chunk and the trailer section
	CloseBody            // with the connection; only of a response
)

// Body follows the bytes of one message body to its end.
type Body struct {
	Kind   BodyKind
	Left   uint64 // bytes left of a LengthBody, or of the chunk at hand
	state  chunkState
	seen   int32 // digits of the chunk size, or bytes of the trailer section
	excess int32 // bytes of chunk lines beyond a reasonable overhead

	isResponse bool // whose client has a limit of its own for trailers
}

// DataSink receives the content of a body, without its framing, piece by piece. It must not retain p.
type DataSink interface {
	Data(p []byte)
}

// Advance takes the next bytes and returns how many belong to the body, and whether it ends there. sink may be nil.
func (b *Body) Advance(p []byte, sink DataSink) (n int, done bool, err error) {
	switch b.Kind {
	case NoBody:
		return 0, true, nil
	case ChunkedBody:
		return b.advanceChunked(p, sink)
	case LengthBody:
		n = int(min(uint64(len(p)), b.Left))
		b.Left -= uint64(n)
		done = b.Left == 0
	case CloseBody:
		n = len(p)
	}
	if sink != nil {
		sink.Data(p[:n])
	}
	return n, done, nil
}
