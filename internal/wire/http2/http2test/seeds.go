// Package http2test has seeds for fuzz tests of HTTP/2.
package http2test

import (
	"bytes"

	"golang.org/x/net/http2"
)

// Seeds returns directions of connections, well-formed and malformed ones.
func Seeds() [][]byte {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	w.AllowIllegalWrites = true
	seeds := [][]byte{}
	seed := func(write func()) {
		b.Reset()
		write()
		seeds = append(seeds, bytes.Clone(b.Bytes()))
	}
	seed(func() {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 100})
		_ = w.WriteSettingsAck()
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, PadLength: 3,
			Priority: http2.PriorityParam{StreamDep: 3}})
		_ = w.WriteContinuation(1, true, []byte{0x84})
		_ = w.WriteData(1, true, []byte("hello"))
		_ = w.WriteDataPadded(1, true, []byte("hello"), make([]byte, 9))
		_ = w.WriteRSTStream(3, http2.ErrCodeCancel)
		_ = w.WritePing(false, [8]byte{})
		_ = w.WriteWindowUpdate(0, 1)
		_ = w.WritePriority(5, http2.PriorityParam{})
		_ = w.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: []byte{0x82},
			EndHeaders: true, PadLength: 1})
		_ = w.WriteRawFrame(0xfa, 0xff, 0, []byte("unknown"))
		_ = w.WriteGoAway(1, http2.ErrCodeNo, []byte("why"))
	})
	seed(func() { _ = w.WriteData(1, true, make([]byte, 16<<10+1)) })
	for kind := range http2.FrameType(0x0b) {
		for _, stream := range []uint32{0, 1} {
			for _, n := range []int{0, 4, 5, 8} {
				seed(func() {
					_ = w.WriteRawFrame(kind, 0x0d, stream, make([]byte, n))
					_ = w.WritePing(true, [8]byte{})
				})
			}
		}
	}
	return seeds
}

// Words are parts of frames and header blocks, which blind mutations would hardly make.
var Words = []string{"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01\x00\x00\x00\x00",
	"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82", "\x00\x00\x01\x01\x04\x00\x00\x00\x03\x84",
	"\x00\x00\x00\x09\x04\x00\x00\x00\x01", "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08",
	"\x00\x00\x00\x00\x01\x00\x00\x00\x01", "\x20", "\x3f\xe1\x1f", "\x82\x84\x86", "\x40\x01a\x01b",
	"\x7f\xff\xff\xff\x0f", "\xff"}
