package pipe

import (
	"errors"

	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

// bodyKind says how the end of a message's body is found (RFC 9112, 6.3).
type bodyKind uint8

const (
	noBody bodyKind = iota
	lengthBody
	chunkedBody
	untilCloseBody
)

// body follows one message body to its end without changing it.
type body struct {
	kind    bodyKind
	state   chunkState
	content content // of what parts it consists; finite: it is not looked at
	last    byte    // of its data, when it consists of lines
	left    uint64  // of a length body or of the chunk at hand, bytes
	seen    int32   // digits of the chunk size, or bytes of the trailer section
	excess  int32   // bytes of chunk lines beyond what sensible chunks have

	messages grpc.Messages       // of gRPC-Web and Connect
	events   *eventstream.Stream // of an event stream
}

// chunkState is where in the chunked coding (RFC 9112, 7.1) the next byte stands.
type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkPad             // white space after the size (RFC 9112, 7.1.1: BWS)
	chunkExt
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart
	trailerName
	trailerLine
	trailerLF
	trailerEndLF
)

const (
	// maxTrailers bounds a trailer section, bytes.
	maxTrailers = 16 << 10

	// maxExcess bounds what the chunk lines of one body may have too much, bytes.
	// Each may have 16 bytes and what its chunk carries; a body of tiny chunks
	// with long extensions only makes work. As in net/http (CVE-2023-39326).
	maxExcess = 16 << 10
)

var (
	errChunkSize = errors.New("chunk size is not a hexadecimal number of at most 15 digits")
	errChunkExt  = errors.New("chunk extension holds a bare CR or LF, or a control character")
	errChunkEnd  = errors.New("chunk data is not followed by CRLF")
	errChunkLine = errors.New("chunk extensions are too long")
	errTrailer   = errors.New("trailer section holds what is no field line")
	errTrailers  = errors.New("trailer section is too long")
)

// advance takes the next bytes of the message and returns how many of them
// belong to this body, and whether it ends there.
func (b *body) advance(p []byte) (n int, done bool, err error) {
	switch b.kind {
	case noBody:
		return 0, true, nil
	case lengthBody:
		if uint64(len(p)) >= b.left {
			n = int(b.left)
			b.left = 0
			return n, true, nil
		}
		b.left -= uint64(len(p))
		return len(p), false, nil
	case untilCloseBody:
		b.note(p)
		return len(p), false, nil
	}
	return b.advanceChunked(p)
}

func (b *body) advanceChunked(p []byte) (n int, done bool, err error) {
	for n < len(p) {
		c := p[n]
		switch b.state {
		case chunkSize:
			if d := hexDigit(c); d >= 0 {
				if b.seen++; b.seen > 15 {
					return n, false, errChunkSize
				}
				b.left = b.left<<4 | uint64(d)
				n++
				continue
			}
			if b.seen == 0 {
				return n, false, errChunkSize
			}
			b.excess, b.seen = b.excess+b.seen, 0
			switch c {
			case '\r':
				b.state = chunkSizeLF
			case ';':
				b.state = chunkExt
			case ' ', '\t':
				b.state = chunkPad
			default:
				return n, false, errChunkSize
			}
			n++
		case chunkPad:
			switch c {
			case '\r':
				b.state = chunkSizeLF
			case ';':
				b.state = chunkExt
			case ' ', '\t':
			default:
				return n, false, errChunkSize
			}
			if b.excess++; b.excess > maxExcess {
				return n, false, errChunkLine
			}
			n++
		case chunkExt:
			m, ok := toCR(p[n:])
			n += m
			if !ok {
				return n, false, errChunkExt
			}
			if b.excess += int32(m); b.excess > maxExcess {
				return n, false, errChunkLine
			}
			if n < len(p) {
				b.state = chunkSizeLF
				n++
			}
		case chunkSizeLF:
			if c != '\n' {
				return n, false, errChunkExt
			}
			n++
			b.forgive()
			if b.state = chunkData; b.left == 0 {
				b.state = trailerStart
			}
		case chunkData:
			m := len(p) - n
			if uint64(m) > b.left {
				m = int(b.left)
			}
			b.note(p[n : n+m])
			n += m
			if b.left -= uint64(m); b.left == 0 {
				b.state = chunkDataCR
			}
		case chunkDataCR:
			if c != '\r' {
				return n, false, errChunkEnd
			}
			n++
			b.state = chunkDataLF
		case chunkDataLF:
			if c != '\n' {
				return n, false, errChunkEnd
			}
			n++
			b.state = chunkSize
		case trailerStart:
			switch {
			case c == '\r':
				b.state = trailerEndLF
				n++
			case tokenByte[c]: // no folded line (RFC 9112, 5.2)
				b.state = trailerName
			default:
				return n, false, errTrailer
			}
		case trailerName:
			if b.seen++; b.seen > maxTrailers {
				return n, false, errTrailers
			}
			if c == ':' {
				b.state = trailerLine
			} else if !tokenByte[c] {
				return n, false, errTrailer
			}
			n++
		case trailerLine:
			m, ok := toCR(p[n:])
			n += m
			if !ok {
				return n, false, errTrailer
			}
			if b.seen += int32(m); b.seen > maxTrailers {
				return n, false, errTrailers
			}
			if n < len(p) {
				b.state = trailerLF
				n++
			}
		case trailerLF:
			if c != '\n' {
				return n, false, errTrailer
			}
			n++
			b.state = trailerStart
		case trailerEndLF:
			if c != '\n' {
				return n, false, errTrailer
			}
			return n + 1, true, nil
		}
	}
	return n, false, nil
}

// forgive takes off the excess what the chunk whose line has ended may have.
func (b *body) forgive() {
	if b.left > maxExcess {
		b.excess = 0
		return
	}
	b.excess = max(0, b.excess-16-2*int32(b.left))
}

// toCR goes to the next CR, which is not consumed. It refuses control characters
// but the tab.
func toCR(p []byte) (n int, ok bool) {
	for n, c := range p {
		switch {
		case c == '\r':
			return n, true
		case c < ' ' && c != '\t', c == 0x7f:
			return n, false
		}
	}
	return len(p), true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
