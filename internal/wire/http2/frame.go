// Package http2 follows connections of HTTP/2 (RFC 9113) whose frames pass through unchanged: where frames begin and
// end, which streams they open and close, and what their header blocks contain (HPACK, RFC 7541). It also has the
// frames that a proxy inserts, the limits that protect the app from a client, and the rules for GOAWAY.
//
// The package has no sockets, goroutines or locks, and following allocates nothing once its buffers have grown.
package http2

import (
	"bytes"
	"encoding/binary"
)

// Preface is the client's first bytes (RFC 9113, 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

var preface = []byte(Preface)

// IsPreface reports whether b begins with the preface or, if it is shorter, with the beginning of it.
func IsPreface(b []byte) bool {
	n := min(len(b), len(preface))
	return n > 0 && bytes.Equal(b[:n], preface[:n])
}

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

// Flags. Which one a bit is depends on the frame's type.
const (
	FlagEndStream  = 0x1
	FlagAck        = 0x1
	FlagEndHeaders = 0x4
	FlagPadded     = 0x8
	FlagPriority   = 0x20
)

// HeaderLen is the length of a frame header, and MaxFrame that of the largest frame, bytes (RFC 9113, 4.1, 4.2).
const (
	HeaderLen = 9
	MaxFrame  = 1 << 24
)

// MaxStreamID is the last stream identifier of a GOAWAY that refuses nothing yet (RFC 9113, 6.8).
const MaxStreamID = 1<<31 - 1

// FrameHeader is a frame header (RFC 9113, 4.1).
type FrameHeader struct {
	Length uint32 // of the payload, bytes
	Type   byte
	Flags  byte
	Stream uint32
}

// ReadHeader reads a frame header from at least HeaderLen bytes.
func ReadHeader(b []byte) FrameHeader {
	return FrameHeader{
		Length: uint32(PayloadLen(b)),
		Type:   b[3],
		Flags:  b[4],
		Stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

// Has reports whether a flag is set.
func (h FrameHeader) Has(flag byte) bool { return h.Flags&flag != 0 }

// PayloadLen returns the length of the payload from at least the first three bytes of a frame header.
func PayloadLen(header []byte) int { return int(header[0])<<16 | int(header[1])<<8 | int(header[2]) }

// Unpad returns a payload without its padding (RFC 9113, 6.1) and its first skip bytes, or ErrSize or ErrPadding.
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

// priorityLen is the length of the priority fields of a HEADERS frame with FlagPriority, bytes (RFC 9113, 6.2).
const priorityLen = 5

// Fragment returns the part of a header block that the payload of a HEADERS frame contains.
func (h FrameHeader) Fragment(payload []byte) ([]byte, error) {
	skip := 0
	if h.Has(FlagPriority) {
		skip = priorityLen
	}
	return Unpad(payload, h.Has(FlagPadded), skip)
}

// ContainsHeaders reports whether frames, which begin at a frame boundary, contain the beginning of a HEADERS frame.
func ContainsHeaders(frames []byte) bool {
	for len(frames) >= HeaderLen {
		h := ReadHeader(frames)
		if h.Type == Headers {
			return true
		}
		frames = frames[min(len(frames), HeaderLen+int(h.Length)):]
	}
	return false
}
