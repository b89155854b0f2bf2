package http1

import (
	"net/http"
	"strconv"
)

// chunkState is the place of the next byte of a chunked body (RFC 9112, 7.1). advanceChunked depends on the order.
type chunkState uint8

const (
	chunkSize   chunkState = iota // chunk-size
	chunkBWS                      // BWS after it (7.1.1)
	chunkExt                      // chunk-ext
	chunkLineLF                   // the LF that ends the line
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart // a field line of the trailer section (7.1.2), or the final CRLF
	trailerName
	trailerValue
	trailerLF
	trailerEndLF
)

const (
	// maxSizeDigits is how many digits a chunk size has at most. It must fit an int64.
	maxSizeDigits = 16

	// maxTrailers bounds a trailer section of a request, bytes.
	maxTrailers = 16 << 10

	// maxExcess bounds the overhead of a body's chunk lines, bytes. Each chunk is granted 16 bytes and twice the size of
	// its data; a body of tiny chunks with long extensions only makes work. net/http has the same rule (CVE-2023-39326).
	maxExcess = 16 << 10
)

// Errors of a chunked body.
var (
	ErrChunkSize       = Malformed("chunk size is not a hexadecimal number of at most 16 digits")
	ErrChunkExt        = Malformed("chunk extension contains a bare CR or LF, or a control character")
	ErrChunkEnd        = Malformed("chunk data is not followed by CRLF")
	ErrChunkLine       = Malformed("chunk extensions are too long")
	ErrTrailer         = Malformed("trailer section contains something other than field lines")
	ErrTrailerTooLarge = &Error{http.StatusRequestHeaderFieldsTooLarge, "trailer section is too long"}
)

func (b *Body) advanceChunked(p []byte, sink DataSink) (n int, done bool, err error) {
	for n < len(p) && !done && err == nil {
		var m int
		switch {
		case b.state == chunkSize:
			m, err = b.advanceSize(p[n:])
		case b.state <= chunkLineLF:
			m, err = b.advanceLine(p[n:])
		case b.state <= chunkDataLF:
			m, err = b.advanceData(p[n:], sink)
		default:
			m, done, err = b.advanceTrailers(p[n:])
		}
		n += m
	}
	return n, done, err
}

// advanceSize takes the chunk size and the bytes behind it: the end of the line, or the byte that begins something
// else.
func (b *Body) advanceSize(p []byte) (n int, err error) {
	size, digits := b.Left, b.seen // in registers
	for n < len(p) {
		d := hexDigit(p[n])
		if d < 0 {
			break
		}
		if digits++; digits > maxSizeDigits {
			return n, ErrChunkSize
		}
		if size = size<<4 | uint64(d); size>>63 != 0 {
			return n, ErrChunkSize
		}
		n++
	}
	b.Left, b.seen = size, digits
	if n == len(p) {
		return n, nil
	}
	if digits == 0 || !b.sizeEnds(p[n]) {
		return n, ErrChunkSize
	}
	b.excess, b.seen = b.excess+digits, 0
	if n++; b.state == chunkLineLF && n < len(p) && p[n] == '\n' {
		b.lineEnds()
		n++
	}
	return n, nil
}

// advanceLine takes the rest of the line after the chunk size: its extensions.
func (b *Body) advanceLine(p []byte) (n int, err error) {
	for ; n < len(p); n++ {
		switch b.state {
		case chunkBWS:
			if !b.sizeEnds(p[n]) {
				return n, ErrChunkSize
			}
			if b.excess++; b.excess > maxExcess {
				return n, ErrChunkLine
			}
		case chunkExt:
			m, ok := toCR(p[n:])
			if n += m; !ok {
				return n, ErrChunkExt
			}
			if b.excess += int32(m); b.excess > maxExcess {
				return n, ErrChunkLine
			}
			if n == len(p) {
				return n, nil
			}
			b.state = chunkLineLF
		default: // chunkLineLF
			if p[n] != '\n' {
				return n, ErrChunkExt
			}
			b.lineEnds()
			return n + 1, nil
		}
	}
	return n, nil
}

// lineEnds begins the data of the chunk, or the trailer section. It subtracts from the excess what the chunk is
// granted.
func (b *Body) lineEnds() {
	b.excess = max(0, b.excess-16-2*int32(min(b.Left, maxExcess)))
	if b.state = chunkData; b.Left == 0 {
		b.state = trailerStart
	}
}

// sizeEnds takes a byte after the chunk size: BWS, the beginning of an extension, or CR.
func (b *Body) sizeEnds(c byte) bool {
	switch c {
	case '\r':
		b.state = chunkLineLF
	case ';':
		b.state = chunkExt
	case ' ', '\t':
		b.state = chunkBWS
	default:
		return false
	}
	return true
}

// advanceData takes bytes of a chunk's data and of the CRLF after it.
func (b *Body) advanceData(p []byte, sink DataSink) (n int, err error) {
	if b.state == chunkData {
		n = int(min(uint64(len(p)), b.Left))
		if sink != nil {
			sink.Data(p[:n])
		}
		if b.Left -= uint64(n); b.Left > 0 {
			return n, nil
		}
		b.state = chunkDataCR
	}
	if b.state == chunkDataCR && n < len(p) {
		if p[n] != '\r' {
			return n, ErrChunkEnd
		}
		b.state = chunkDataLF
		n++
	}
	if b.state == chunkDataLF && n < len(p) {
		if p[n] != '\n' {
			return n, ErrChunkEnd
		}
		b.state = chunkSize
		n++
	}
	return n, nil
}

// advanceTrailers takes bytes of the trailer section and of the CRLF that ends the body.
func (b *Body) advanceTrailers(p []byte) (n int, done bool, err error) {
	for ; n < len(p); n++ {
		c := p[n]
		if b.state == trailerStart {
			if c == '\r' {
				b.state = trailerEndLF
				continue
			}
			b.state = trailerName // no folded line: white space is not part of a name (RFC 9112, 5.2)
			if !tokenByte[c] {
				return n, false, ErrTrailer
			}
		}
		switch {
		case b.state == trailerName:
			if b.seen++; b.seen > maxTrailers && !b.isResponse {
				return n, false, ErrTrailerTooLarge
			}
			if c == ':' {
				b.state = trailerValue
			} else if !tokenByte[c] {
				return n, false, ErrTrailer
			}
		case b.state == trailerValue:
			m, ok := toCR(p[n:])
			if n += m; !ok {
				return n, false, ErrTrailer
			}
			if b.seen += int32(m); b.seen > maxTrailers && !b.isResponse {
				return n, false, ErrTrailerTooLarge
			}
			if n == len(p) {
				return n, false, nil
			}
			b.state = trailerLF
		case c != '\n':
			return n, false, ErrTrailer
		case b.state == trailerEndLF:
			return n + 1, true, nil
		default: // trailerLF
			b.state = trailerStart
		}
	}
	return n, false, nil
}

// AtChunkBoundary reports whether the next byte begins a chunk, so that the proxy may insert one of its own.
func (b *Body) AtChunkBoundary() bool { return b.state == chunkSize && b.seen == 0 }

// LastChunk ends a chunked body without a trailer section.
const LastChunk = "0\r\n\r\n"

// AppendChunk appends a chunk with the given data, which must not be empty.
func AppendChunk(dst, data []byte) []byte {
	dst = append(strconv.AppendInt(dst, int64(len(data)), 16), "\r\n"...)
	return append(append(dst, data...), "\r\n"...)
}

// toCR returns how many bytes precede the next CR; if a control character other than tab does, its index and false.
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
