package pipe

import (
	"encoding/binary"
	"errors"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// Error codes (RFC 9113, 7).
const (
	codeNoError         = 0x0
	codeProtocolError   = 0x1
	codeInternal        = 0x2
	codeFrameSize       = 0x6
	codeCompression     = 0x9
	codeEnhanceYourCalm = 0xb
)

// frame is a frame's header.
type frame struct {
	length uint32 // of the payload
	kind   byte
	flags  byte
	stream uint32
}

// readFrame reads a header of http2.HeaderLen bytes.
func readFrame(b []byte) frame {
	return frame{
		length: uint32(http2.PayloadLen(b)),
		kind:   b[3],
		flags:  b[4],
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

func (f frame) has(flag byte) bool { return f.flags&flag != 0 }

// maxStreamID is the last stream of a GOAWAY that only announces another
// (RFC 9113, 6.8).
const maxStreamID = 1<<31 - 1

func appendGoAway(dst []byte, last, code uint32, why string) []byte {
	payload := binary.BigEndian.AppendUint32(nil, last)
	payload = binary.BigEndian.AppendUint32(payload, code)
	return http2.Append(dst, http2.GoAway, 0, 0, append(payload, why...))
}

func appendReset(dst []byte, stream, code uint32) []byte {
	return http2.Append(dst, http2.RSTStream, 0, stream, binary.BigEndian.AppendUint32(nil, code))
}

// Header fields of ours are literals that no table takes in (RFC 7541, 6.2.2),
// without Huffman coding: the peer's decoder stays as the app's encoder believes
// it to be.
func appendStatus(dst []byte, status string) []byte {
	dst = append(dst, 0x08) // the name at index 8: :status
	return appendLiteral(dst, status)
}

func appendField(dst []byte, name, value string) []byte {
	dst = append(dst, 0x00) // a name of our own
	return appendLiteral(appendLiteral(dst, name), value)
}

// appendLiteral writes a string shorter than 127 bytes, or its beginning.
func appendLiteral(dst []byte, s string) []byte {
	s = s[:min(len(s), 126)]
	return append(append(dst, byte(len(s))), s...)
}

// What is not HTTP/2.
var (
	errFrameOrder = errors.New("a frame that must not come here")
	errStreamID   = errors.New("a stream identifier that must not come here")
)

// codeOf is the error code with which a violation is answered.
func codeOf(err error) uint32 {
	var tooMuch flood
	switch {
	case errors.As(err, &tooMuch):
		return codeEnhanceYourCalm
	case errors.Is(err, http2.ErrSize):
		return codeFrameSize
	case errors.Is(err, errFrameOrder), errors.Is(err, errStreamID), errors.Is(err, http2.ErrPadding), errors.Is(err, errPreface):
		return codeProtocolError
	}
	return codeCompression
}
