// Package grpc follows the messages of gRPC in a body (PROTOCOL-HTTP2.md, Length-Prefixed-Message), so that a proxy can
// end a response between two of them. gRPC-Web and Connect have the same messages.
package grpc

import (
	"encoding/binary"
	"strconv"

	"github.com/lastcall-dev/lastcall/drain"
)

// Status is the end of a call.
type Status struct {
	Code    int
	Name    string // in the Connect protocol
	Message string // without a quote, a percent sign and control characters
}

// Unavailable ends the calls that the last call ends. Clients may retry them (gRPC's statuscodes.md). Reports call it
// drain.EndingGRPC.
var Unavailable = Status{Code: 14, Name: drain.EndingConnect, Message: drain.MessageLastCall}

// Trailers are the fields that end the response, each a name and a value.
func (s Status) Trailers() [2][2]string {
	return [...][2]string{{"grpc-status", strconv.Itoa(s.Code)}, {"grpc-message", s.Message}}
}

// IsType reports whether a Content-Type is application/grpc, with or without a suffix (+proto), and not gRPC-Web.
func IsType(contentType []byte) bool {
	const grpc = "application/grpc"
	n := len(grpc)
	return len(contentType) >= n && string(contentType[:n]) == grpc &&
		(len(contentType) == n || contentType[n] == '+' || contentType[n] == ';')
}

// prefixLen is the length of a message's prefix, bytes: flags, and the length of the message in 4 bytes.
const prefixLen = 5

// Messages follows where messages begin and end. The zero value is between two messages.
type Messages struct {
	left   uint32          // bytes of the message still to come
	prefix [prefixLen]byte // as much as has come; then that of the last message
	have   uint8           // bytes of prefix
	lost   bool            // message boundaries are unknown
}

// Within reports whether the next byte belongs to a message that has begun.
func (m *Messages) Within() bool { return !m.lost && (m.left > 0 || m.have > 0) }

// Lose is called when a part of the body has not been followed: message boundaries are unknown from then on.
func (m *Messages) Lose() { m.lost = true }

// Flags returns the flags of the last message whose prefix is complete; 0 before the first.
func (m *Messages) Flags() byte { return m.prefix[0] }

// Append appends a message.
func Append(dst []byte, flags byte, message []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, flags), uint32(len(message)))
	return append(dst, message...)
}

// Follow takes the next bytes of the body.
func (m *Messages) Follow(p []byte) {
	for len(p) > 0 && !m.lost {
		if m.left > 0 {
			n := min(uint32(len(p)), m.left)
			m.left -= n
			p = p[n:]
			continue
		}
		n := copy(m.prefix[m.have:], p)
		m.have += uint8(n)
		p = p[n:]
		if m.have == prefixLen {
			m.left, m.have = binary.BigEndian.Uint32(m.prefix[1:]), 0
		}
	}
}
