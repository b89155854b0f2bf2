// Package ws follows the frames of a WebSocket connection (RFC 6455) that passes through unchanged, so that a close
// frame can be inserted between two frames or messages. It has no sockets, goroutines or locks, and following
// allocates nothing.
package ws

import (
	"crypto/rand"
	"encoding/binary"
)

// Bits and opcodes of a frame header (RFC 6455, 5.2).
const (
	bitFIN     = 0x80
	bitMASK    = 0x80
	maskOpcode = 0x0f

	opContinuation = 0x0
	opBinary       = 0x2
	opClose        = 0x8
	opPong         = 0xa
)

const (
	// maxHeader is the longest frame header, bytes.
	maxHeader = 14

	// maxControl is the largest payload of a control frame, bytes (5.5).
	maxControl = 125
)

// Status codes of a close frame (7.4.1; 1012 of IANA's registry).
const (
	CloseGoingAway      = 1001
	CloseServiceRestart = 1012

	CloseAtLastCall = CloseGoingAway // by default
)

// AppendClose appends a close frame with a status code (RFC 6455, 7.4) and a reason of at most 123 bytes, which may be
// empty. What a client sends must be masked (5.3).
func AppendClose(dst []byte, code int, reason string, masked bool) []byte {
	start := len(dst) + 2
	dst = append(dst, bitFIN|opClose, byte(2+len(reason)))
	var key [4]byte
	if masked {
		_, _ = rand.Read(key[:]) // never fails
		dst[start-1] |= bitMASK
		dst = append(dst, key[:]...)
		start += len(key)
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	dst = append(dst, reason...)
	for i := range dst[start:] {
		dst[start+i] ^= key[i%4]
	}
	return dst
}
