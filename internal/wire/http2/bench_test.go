package http2

import (
	"bytes"
	"testing"

	nethttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// ignore is an Events and a FieldSink that does nothing.
type ignore struct{}

func (ignore) Headers(uint32, []byte, bool) error       { return nil }
func (ignore) PushPromise(uint32, uint32, []byte) error { return nil }
func (ignore) Data(FrameHeader, []byte)                 {}
func (ignore) EndStream(uint32)                         {}
func (ignore) Reset(uint32) error                       { return nil }
func (ignore) Settings([]byte)                          {}
func (ignore) SettingsAck()                             {}
func (ignore) WindowUpdate(uint32, uint32)              {}
func (ignore) PingAck()                                 {}
func (ignore) GoAway(uint32)                            {}
func (ignore) Field(FieldName, []byte)                  {}

// responses returns 32 responses as nginx sends them, and their header blocks.
func responses() (frames []byte, blocks [][]byte) {
	var out, block bytes.Buffer
	framer, encoder := nethttp2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	for i := range uint32(32) {
		block.Reset()
		for _, f := range [][2]string{{":status", "200"}, {"server", "nginx/1.22.1"}, {"content-type", "application/json"}, {"content-length", "55"}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		blocks = append(blocks, bytes.Clone(block.Bytes()))
		_ = framer.WriteHeaders(nethttp2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = framer.WriteData(2*i+1, true, make([]byte, 55))
	}
	return out.Bytes(), blocks
}

func BenchmarkFollow(b *testing.B) {
	frames, _ := responses()
	f := Follower{MaxBlock: 64 << 10}
	var events Events = ignore{}
	b.SetBytes(int64(len(frames)))
	b.ReportAllocs()
	for b.Loop() {
		if n, err := f.Follow(frames, events); n != len(frames) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	_, blocks := responses()
	d := NewDecoder(someFields)
	b.ReportAllocs()
	for b.Loop() {
		for _, block := range blocks {
			if err := d.Decode(block, DefaultTableSize, ignore{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
