// Package wstest writes the frames of a WebSocket for tests.
package wstest

import "bytes"

// Frame returns a frame as a server sends it. first is the byte with FIN and opcode.
func Frame(first byte, payload string) string {
	switch n := len(payload); {
	case n < 126:
		return string([]byte{first, byte(n)}) + payload
	case n < 1<<16:
		return string([]byte{first, 126, byte(n >> 8), byte(n)}) + payload
	default:
		return string([]byte{first, 127, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + payload
	}
}

// Masked returns a frame as a client sends it.
func Masked(first byte, payload string) string {
	f := []byte(Frame(first, payload))
	f[1] |= 0x80
	head := len(f) - len(payload)
	out := append(bytes.Clone(f[:head]), 1, 2, 3, 4)
	for i, b := range []byte(payload) {
		out = append(out, b^byte(1+i%4))
	}
	return string(out)
}
