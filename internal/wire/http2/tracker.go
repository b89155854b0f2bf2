package http2

import "encoding/binary"

// Tracker finds where frames end in bytes that pass immediately. It reads no payload, except for an error code.
type Tracker struct {
	Skip int // bytes of a preface before the first frame

	header [HeaderLen]byte
	have   int     // bytes of header
	left   int     // bytes of payload still to come
	begin  [4]byte // of the payload
	got    int     // bytes of begin
}

// AtBoundary reports whether the next byte begins a frame.
func (t *Tracker) AtBoundary() bool { return t.have == 0 }

// Next takes bytes up to the end of a frame and returns the rest. ended is false if the frame has not ended.
func (t *Tracker) Next(b []byte) (rest []byte, ended bool) {
	n := min(t.Skip, len(b))
	t.Skip, b = t.Skip-n, b[n:]
	if t.have < HeaderLen {
		n := copy(t.header[t.have:], b)
		t.have, b = t.have+n, b[n:]
		if t.have < HeaderLen {
			return nil, false
		}
		t.left, t.got = PayloadLen(t.header[:]), 0
	}
	n = min(t.left, len(b))
	t.got += copy(t.begin[t.got:], b[:n])
	t.left, b = t.left-n, b[n:]
	if t.left > 0 {
		return nil, false
	}
	t.have = 0
	return b, true
}

// Frame returns the header of the frame that has ended.
func (t *Tracker) Frame() FrameHeader { return ReadHeader(t.header[:]) }

// Code returns the error code of a RST_STREAM frame that has ended.
func (t *Tracker) Code() ErrCode { return ErrCode(binary.BigEndian.Uint32(t.begin[:])) }
