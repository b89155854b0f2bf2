package ws

import "encoding/binary"

// Follower follows the frames of one direction by their headers; payload is skipped. The zero value follows those of a
// server. Bytes that are not frames are left to their receiver to refuse: they are no longer followed.
type Follower struct {
	Masked bool // the frames of a client, which must be masked; those of a server must not be (RFC 6455, 5.1)

	header [maxHeader]byte // as much of it as has come
	n      int             // bytes of header
	left   uint64          // bytes of payload still to come
	open   bool            // within a fragmented message
	closed bool            // a close frame has passed
	lost   bool            // not followed
}

// Stop is where Follow stops before it has taken all bytes.
type Stop uint8

// Places to stop at. Follow always stops behind a close frame.
const (
	AtClose   Stop = iota
	AtMessage      // after the first message that ends
)

// Follow takes the next bytes and returns how many of them precede the place to stop at: all of them if there is none.
// It returns fewer also if they are not frames.
func (f *Follower) Follow(p []byte, stop Stop) (n int) {
	for n < len(p) && !f.closed && !f.lost {
		if f.left > 0 {
			m := min(f.left, uint64(len(p)-n))
			n += int(m)
			f.left -= m
		} else if n += f.takeHeader(p[n:]); f.lost {
			return n
		}
		if f.left == 0 && f.n > 0 && f.n >= f.headerLen() {
			switch op := f.opcode(); {
			case op == opClose:
				f.closed = true
			case op < opClose:
				f.open = f.header[0]&bitFIN == 0
			}
			f.n = 0
			if stop == AtMessage && f.BetweenMessages() {
				return n
			}
		}
	}
	return n
}

// Left returns how many bytes of the present frame's payload are still to come.
func (f *Follower) Left() uint64 { return f.left }

// Skip is called when n bytes of payload, fewer than Left, have passed elsewhere.
func (f *Follower) Skip(n uint64) { f.left -= n }

// Lose is called when an unknown number of bytes has passed.
func (f *Follower) Lose() { f.lost = true }

// IsLost reports whether frames are no longer followed.
func (f *Follower) IsLost() bool { return f.lost }

// IsClosed reports whether a close frame has passed.
func (f *Follower) IsClosed() bool { return f.closed }

// BetweenFrames reports whether a control frame may be inserted (RFC 6455, 5.4). It is false after a close frame.
func (f *Follower) BetweenFrames() bool { return f.n == 0 && f.left == 0 && !f.lost && !f.closed }

// BetweenMessages reports whether a close frame may be inserted without truncating a message.
func (f *Follower) BetweenMessages() bool { return f.BetweenFrames() && !f.open }

// headerLen returns the length of the present header, as far as the bytes so far determine it.
func (f *Follower) headerLen() int {
	n := 2
	if f.n < 2 {
		return n
	}
	switch f.header[1] &^ bitMASK {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.header[1]&bitMASK != 0 {
		n += 4
	}
	return n
}

// takeHeader takes bytes of a frame header, and reads it when it is complete.
func (f *Follower) takeHeader(p []byte) (n int) {
	for n < len(p) && f.n < f.headerLen() {
		f.header[f.n] = p[n]
		f.n++
		n++
	}
	if f.n < f.headerLen() {
		return n
	}
	switch length := f.header[1] &^ bitMASK; length {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(f.header[2:]))
	case 127:
		f.left = binary.BigEndian.Uint64(f.header[2:])
	default:
		f.left = uint64(length)
	}
	f.lost = !f.isFrame()
	return n
}

// isFrame reports whether this header is one of a frame. Reserved bits belong to extensions and do not move its end.
func (f *Follower) isFrame() bool {
	fin, masked := f.header[0]&bitFIN != 0, f.header[1]&bitMASK != 0
	switch op := f.opcode(); {
	case masked != f.Masked, f.left>>63 != 0:
		return false
	case op >= opClose:
		return op <= opPong && fin && f.left <= maxControl
	case op == opContinuation:
		return f.open
	default:
		return op <= opBinary && !f.open
	}
}

func (f *Follower) opcode() byte { return f.header[0] & maskOpcode }
