package pipe

import (
	"bytes"
	"errors"
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
	kind  bodyKind
	state chunkState
	left  uint64 // of a length body or of the chunk at hand, bytes
	seen  int    // digits of the chunk size, or bytes of the line at hand
}

// chunkState is where in the chunked coding (RFC 9112, 7.1) the next byte stands.
type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkExt
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart
	trailerLine
	trailerLF
	trailerEndLF
)

// maxChunkLine bounds a chunk extension and a trailer section, bytes.
const maxChunkLine = 16 << 10

var (
	errChunkSize = errors.New("chunk size is not a hexadecimal number of at most 15 digits")
	errChunkExt  = errors.New("chunk extension holds a bare CR or LF, or is too long")
	errChunkEnd  = errors.New("chunk data is not followed by CRLF")
	errTrailer   = errors.New("trailer section holds a bare CR or LF, or is too long")
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
			b.seen = 0
			switch c {
			case '\r':
				b.state = chunkSizeLF
			case ';', ' ', '\t':
				b.state = chunkExt
			default:
				return n, false, errChunkSize
			}
			n++
		case chunkExt:
			m, ok := b.line(p[n:])
			n += m
			if !ok {
				return n, false, errChunkExt
			}
			if n < len(p) {
				b.state, b.seen = chunkSizeLF, 0
				n++
			}
		case chunkSizeLF:
			if c != '\n' {
				return n, false, errChunkExt
			}
			n++
			if b.state = chunkData; b.left == 0 {
				b.state = trailerStart
			}
		case chunkData:
			m := len(p) - n
			if uint64(m) > b.left {
				m = int(b.left)
			}
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
			if c == '\r' {
				b.state = trailerEndLF
				n++
				continue
			}
			b.state = trailerLine
		case trailerLine:
			m, ok := b.line(p[n:])
			n += m
			if !ok {
				return n, false, errTrailer
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

// line goes to the next CR, which is not consumed. It refuses a bare LF, NUL
// and more than maxChunkLine bytes in all lines of one message.
func (b *body) line(p []byte) (n int, ok bool) {
	n = bytes.IndexByte(p, '\r')
	if n < 0 {
		n = len(p)
	}
	b.seen += n
	return n, b.seen <= maxChunkLine && bytes.IndexByte(p[:n], '\n') < 0 && bytes.IndexByte(p[:n], 0) < 0
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
