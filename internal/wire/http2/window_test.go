package http2

import (
	"encoding/binary"
	"testing"
)

// A stream may send what the client has allowed for certain: a larger first window counts when the client knows that it
// has arrived, a smaller one at once.
func TestWindows(t *testing.T) {
	first := func(n uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, settingInitialWindowSize), n)
	}
	w := NewWindows()
	var stream Window
	want := func(allowed int) {
		t.Helper()
		if !w.Allow(stream, allowed) || w.Allow(stream, allowed+1) {
			t.Errorf("%+v, %d: does not allow exactly %d", w, stream, allowed)
		}
	}
	want(65535)
	stream.Sends(65000)
	w.Conn.Sends(65000)
	want(535)
	stream.Grows(1000)
	want(535)
	w.Conn.Grows(1 << 20)
	want(1535)
	w.Announce(first(100_000))
	want(1535)
	w.Acknowledge()
	want(1535 + 100_000 - 65535)
	w.Announce(first(65535))
	want(1535)
	w.Announce(first(200_000))
	w.Acknowledge()
	want(1535)
	w.Acknowledge()
	want(1535 + 200_000 - 65535)
	w.Announce(first(0))
	if w.Allow(stream, 0) {
		t.Error("a window below zero allows an empty frame of data")
	}
}
