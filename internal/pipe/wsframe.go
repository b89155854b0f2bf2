package pipe

import (
	"crypto/rand"
	"encoding/binary"
)

// wsFollower follows the frames of one direction of a WebSocket by their headers
// (RFC 6455, 5.2); payload is passed over. It changes nothing. What does not look
// like frames is not refused, that is for its receiver: it is no longer followed.
type wsFollower struct {
	head   [14]byte // of the header at hand, as far as it has come
	n      int      // bytes of it
	left   uint64   // of the frame's payload, still to come
	masked bool     // as a client's frames must be, and a server's must not
	open   bool     // a message of several frames is under way
	closed bool     // a close frame has passed, whole
	lost   bool     // these are no frames
}

// The opcodes that matter here.
const (
	wsContinuation = 0x0
	wsBinary       = 0x2
	wsClose        = 0x8
	wsPong         = 0xa

	wsFin  = 0x80
	wsMask = 0x80

	// maxControl is the largest payload of a control frame, bytes (5.5).
	maxControl = 125
)

// follow takes the next bytes and returns how many of them it has passed: all of
// them, unless a close frame ends before, or these are no frames. With pause it
// stops at the first end of a message as well.
func (f *wsFollower) follow(p []byte, pause bool) (n int) {
	for n < len(p) && !f.closed && !f.lost {
		if f.left > 0 {
			m := min(f.left, uint64(len(p)-n))
			n += int(m)
			f.left -= m
		} else if n += f.header(p[n:]); f.lost {
			return n
		}
		if f.left == 0 && f.n >= f.size() && f.n > 0 {
			f.frameEnds()
			if pause && f.betweenMessages() {
				return n
			}
		}
	}
	return n
}

// size is how long the header at hand is, as far as it can be known.
func (f *wsFollower) size() int {
	if f.n < 2 {
		return 2
	}
	size := 2
	switch f.head[1] &^ wsMask {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if f.head[1]&wsMask != 0 {
		size += 4
	}
	return size
}

// header takes bytes of a frame's header, and reads it when it is whole.
func (f *wsFollower) header(p []byte) (n int) {
	for n < len(p) && f.n < f.size() {
		f.head[f.n] = p[n]
		f.n++
		n++
	}
	if f.n < f.size() {
		return n
	}
	switch short := f.head[1] &^ wsMask; short {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		f.left = binary.BigEndian.Uint64(f.head[2:])
	default:
		f.left = uint64(short)
	}
	f.lost = !f.isFrame()
	return n
}

// isFrame says whether the header at hand is one that both ends agree on. The
// reserved bits are for extensions, which change nothing about where frames end.
func (f *wsFollower) isFrame() bool {
	fin, masked := f.head[0]&wsFin != 0, f.head[1]&wsMask != 0
	switch op := f.opcode(); {
	case masked != f.masked, f.left>>63 != 0:
		return false
	case op >= wsClose:
		return op <= wsPong && fin && f.left <= maxControl
	case op == wsContinuation:
		return f.open
	default:
		return op <= wsBinary && !f.open
	}
}

func (f *wsFollower) opcode() byte { return f.head[0] & 0x0f }

func (f *wsFollower) frameEnds() {
	switch op := f.opcode(); {
	case op == wsClose:
		f.closed = true
	case op < wsClose:
		f.open = f.head[0]&wsFin == 0
	}
	f.n = 0
}

// betweenFrames says whether a control frame of ours may come next (5.4).
func (f *wsFollower) betweenFrames() bool { return f.n == 0 && f.left == 0 && !f.lost && !f.closed }

// betweenMessages says whether nothing is lost when no data comes any more.
func (f *wsFollower) betweenMessages() bool { return f.betweenFrames() && !f.open }

// appendClose adds a close frame with its status code (7.4) and reason.
func appendClose(dst []byte, code int, reason string, masked bool) []byte {
	start := len(dst) + 2
	dst = append(dst, wsFin|wsClose, byte(2+len(reason)))
	var key [4]byte
	if masked {
		_, _ = rand.Read(key[:]) // never fails
		dst[start-1] |= wsMask
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
