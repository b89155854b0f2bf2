// Package tcp has the sockets of the hot path, with TLS and splice, and dials loopback by IPv4 or IPv6.
package tcp

import "sync"

// Buffers are held only while they hold data: an idle connection waits for readability without one. Most messages fit
// the small size; a stream that fills it continues with the large one.
const (
	SmallBuffer = 8 << 10
	largeBuffer = 64 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { return &Buffer{B: make([]byte, SmallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &Buffer{B: make([]byte, largeBuffer)} }}
)

// Buffer holds bytes that have been read and not yet been passed on: B[R:W].
type Buffer struct {
	B    []byte
	R, W int
}

// GetBuffer takes an empty buffer from a pool.
func GetBuffer(large bool) *Buffer {
	if large {
		return largeBuffers.Get().(*Buffer)
	}
	return smallBuffers.Get().(*Buffer)
}

// Free returns the buffer to its pool.
func (b *Buffer) Free() {
	b.R, b.W = 0, 0
	switch len(b.B) {
	case SmallBuffer:
		smallBuffers.Put(b)
	case largeBuffer:
		largeBuffers.Put(b)
	}
}

// Drained reports whether the buffer is empty and a larger one is available.
func (b *Buffer) Drained() bool { return b.R == b.W && len(b.B) < largeBuffer }

// Bytes is the data in the buffer.
func (b *Buffer) Bytes() []byte { return b.B[b.R:b.W] }

// IsFull reports whether the next read needs a larger buffer.
func (b *Buffer) IsFull() bool { return b.R == 0 && b.W == len(b.B) }

// Grown is the size of the buffer that replaces a full one, bytes.
func (b *Buffer) Grown() int { return max(largeBuffer, 2*len(b.B)) }

// Room makes room for the next read by moving the data to the front. A full buffer is replaced by a larger one, up to
// limit bytes; false means that it is full at the limit.
func (b *Buffer) Room(limit int) (*Buffer, bool) {
	if b.R == b.W {
		b.R, b.W = 0, 0
	}
	if b.W < len(b.B) {
		return b, true
	}
	if b.R > 0 {
		copy(b.B, b.B[b.R:b.W])
		b.R, b.W = 0, b.W-b.R
		return b, true
	}
	if len(b.B) >= limit {
		return b, false
	}
	bigger := &Buffer{}
	if len(b.B) < largeBuffer {
		bigger = GetBuffer(true)
	} else {
		bigger.B = make([]byte, 2*len(b.B))
	}
	bigger.W = copy(bigger.B, b.Bytes())
	b.Free()
	return bigger, true
}
