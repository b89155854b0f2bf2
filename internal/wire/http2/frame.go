// Package http2 has the framing of HTTP/2 (RFC 9113, 4.1 and 6) for who follows or speaks it byte by byte.
package http2

import (
	"encoding/binary"
	"errors"
)

// Frame types (RFC 9113, 6).
const (
	Data         = 0x0
	Headers      = 0x1
	Priority     = 0x2
	RSTStream    = 0x3
	Settings     = 0x4
	PushPromise  = 0x5
	Ping         = 0x6
	GoAway       = 0x7
	WindowUpdate = 0x8
	Continuation = 0x9
)

// Flags that framing turns on; which one a bit is depends on the frame's type.
const (
	FlagEndStream  = 0x1
	FlagAck        = 0x1
	FlagEndHeaders = 0x4
	FlagPadded     = 0x8
	FlagPriority   = 0x20
)

// HeaderLen is the length of a frame's header, bytes.
const HeaderLen = 9

// PayloadLen is how long the payload is that follows a header, of which there are at least three bytes.
func PayloadLen(header []byte) int {
	return int(header[0])<<16 | int(header[1])<<8 | int(header[2])
}

// What a payload can have wrong.
var (
	ErrSize    = errors.New("a frame of a size that its type does not allow")
	ErrPadding = errors.New("padding beyond the end of its frame")
)

// Append adds a whole frame.
func Append(dst []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	dst = binary.BigEndian.AppendUint32(dst, stream)
	return append(dst, payload...)
}

// Unpad returns a payload without its padding and its first skip bytes; ErrSize or ErrPadding when it is too short.
func Unpad(p []byte, padded bool, skip int) ([]byte, error) {
	pad := 0
	if padded {
		if len(p) < 1 {
			return nil, ErrSize
		}
		pad, p = int(p[0]), p[1:]
	}
	if len(p) < skip {
		return nil, ErrSize
	}
	if len(p) < pad+skip {
		return nil, ErrPadding
	}
	return p[skip : len(p)-pad], nil
}
