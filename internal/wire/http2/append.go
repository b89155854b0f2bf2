package http2

import "encoding/binary"

// Append appends a frame.
func Append(dst []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	dst = binary.BigEndian.AppendUint32(dst, stream)
	return append(dst, payload...)
}

// AppendGoAway appends a GOAWAY frame with optional debug data (RFC 9113, 6.8).
func AppendGoAway(dst []byte, lastStream uint32, code ErrCode, debug string) []byte {
	payload := binary.BigEndian.AppendUint32(nil, lastStream)
	payload = binary.BigEndian.AppendUint32(payload, uint32(code))
	return Append(dst, GoAway, 0, 0, append(payload, debug...))
}

// AppendReset appends a RST_STREAM frame (RFC 9113, 6.4).
func AppendReset(dst []byte, stream uint32, code ErrCode) []byte {
	return Append(dst, RSTStream, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

// Fields of a header block that a proxy inserts are literals without indexing (RFC 7541, 6.2.2) and without Huffman
// coding: they leave the dynamic table of the peer's decoder as the app's encoder expects it.

// AppendField appends a field to a header block.
func AppendField(block []byte, name, value string) []byte {
	block = append(block, 0x00) // the name follows as a string
	return appendString(appendString(block, name), value)
}

// appendString appends a string literal (RFC 7541, 5.2), cut to the length that fits in one byte.
func appendString(block []byte, s string) []byte {
	s = s[:min(len(s), 126)]
	return append(append(block, byte(len(s))), s...)
}
