// Package grpc has the framing of gRPC's messages (PROTOCOL-HTTP2.md, Length-Prefixed-Message), which gRPC-Web
// and Connect have as well, for who passes them on and ends a response in between two of them.
package grpc

import "encoding/binary"

// Unavailable is the status that clients may try again after (gRPC's statuscodes.md).
const Unavailable = "14"

// IsType says whether a content-type is application/grpc or one of its kind. gRPC-Web, whose trailers are part of
// its body, is none.
func IsType(contentType []byte) bool {
	const grpc = "application/grpc"
	n := len(grpc)
	return len(contentType) >= n && string(contentType[:n]) == grpc &&
		(len(contentType) == n || contentType[n] == '+' || contentType[n] == ';')
}

// Messages follows where messages begin and end: a byte of flags, the length in 4
// bytes, the message. The zero value is between two.
type Messages struct {
	left   uint32  // of the message at hand, bytes
	prefix [5]byte // flags and length, as far as they have come; then of the last message
	have   uint8   // bytes of the prefix
	lost   bool    // its end cannot be known
}

// Within says whether the next byte belongs to a message that has begun.
func (m *Messages) Within() bool { return !m.lost && (m.left > 0 || m.have > 0) }

// Lose says that a part has not been followed: no message is known to begin or end any more.
func (m *Messages) Lose() { m.lost = true }

// Flags are those of the last message whose prefix is whole; 0 before the first.
func (m *Messages) Flags() byte { return m.prefix[0] }

// Follow takes in the next bytes.
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
		if int(m.have) == len(m.prefix) {
			m.left, m.have = binary.BigEndian.Uint32(m.prefix[1:]), 0
		}
	}
}
