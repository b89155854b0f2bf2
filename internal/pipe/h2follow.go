package pipe

import (
	"encoding/binary"
	"time"
)

// follower follows one direction of HTTP/2 from frame to frame. It looks into
// the payload of only those frames that need it, and gathers what of them comes
// in pieces.
type follower struct {
	left    uint32 // of the payload at hand, bytes
	at      frame  // whose payload that is
	gather  bool   // the payload is looked into
	payload []byte // of it, so far

	block    []byte // of a header block, so far
	inBlock  bool   // HEADERS or PUSH_PROMISE without END_HEADERS: CONTINUATION must follow
	blockOf  frame  // what began it
	promised uint32 // by PUSH_PROMISE

	spoke   bool // the first SETTINGS, which begins the direction, has come
	guarded bool // against floods: the client's side
	floods  flood
}

// visitor is told of what matters. A header block may be kept only until the
// call returns.
type visitor interface {
	headers(stream uint32, block []byte, end bool) error
	promise(stream, promised uint32, block []byte) error
	end(stream uint32)                // END_STREAM on DATA
	reset(stream uint32)              // RST_STREAM
	settings(id uint16, value uint32) // one of them
	goAway(last uint32)               //
}

// maxBlock bounds a header block with its continuations, bytes of its coded form.
const maxBlock = 64 << 10

// boundary says whether a frame of ours may be put in here.
func (f *follower) boundary() bool { return f.left == 0 && !f.inBlock }

// follow takes the next bytes and returns how many of them are understood: an
// incomplete frame header is left for the next time.
func (f *follower) follow(p []byte, v visitor) (n int, err error) {
	for {
		if f.left > 0 {
			m := int(min(uint64(f.left), uint64(len(p)-n)))
			if f.gather {
				f.payload = append(f.payload, p[n:n+m]...)
			}
			n += m
			if f.left -= uint32(m); f.left > 0 {
				return n, nil
			}
			if err := f.complete(v); err != nil {
				return n, err
			}
			continue
		}
		if len(p)-n < frameHeaderLen {
			return n, nil
		}
		f.at = readFrame(p[n:])
		if err := f.begin(); err != nil {
			return n, err
		}
		n += frameHeaderLen
		if f.left = f.at.length; f.left == 0 {
			if err := f.complete(v); err != nil {
				return n, err
			}
		}
	}
}

// begin looks at a frame's header.
func (f *follower) begin() error {
	at := f.at
	if f.inBlock != (at.kind == frameContinuation) || f.inBlock && at.stream != f.blockOf.stream {
		return errFrameOrder
	}
	f.payload = f.payload[:0]
	f.gather = false
	switch at.kind {
	case frameHeaders, framePushPromise, frameContinuation:
		if at.stream == 0 {
			return errStreamID
		}
		if len(f.block)+int(at.length) > maxBlock {
			return errHeaderSize
		}
		f.gather = true
	case frameData:
		if at.stream == 0 {
			return errStreamID
		}
	case frameRSTStream:
		if at.stream == 0 {
			return errStreamID
		}
		if at.length != 4 {
			return errFrameSize
		}
	case frameSettings:
		if at.stream != 0 {
			return errStreamID
		}
		if at.length%6 != 0 || at.length > 6*100 || at.has(flagAck) && at.length != 0 {
			return errFrameSize
		}
		f.gather = true
		f.spoke = f.spoke || !at.has(flagAck)
	case framePing:
		if at.length != 8 {
			return errFrameSize
		}
	case frameGoAway:
		if at.length < 8 || at.length > 16<<10 {
			return errFrameSize
		}
		f.gather = true
	}
	if !f.guarded {
		return nil
	}
	return f.floods.check(at, time.Now)
}

// complete is the end of a frame's payload.
func (f *follower) complete(v visitor) error {
	at, p := f.at, f.payload
	switch at.kind {
	case frameData:
		if at.has(flagEndStream) {
			v.end(at.stream)
		}
	case frameHeaders:
		fragment, err := unpad(p, at.has(flagPadded), skipOf(at))
		if err != nil {
			return err
		}
		f.blockOf, f.block = at, append(f.block[:0], fragment...)
		return f.blockEnds(at, v)
	case framePushPromise:
		fragment, err := unpad(p, at.has(flagPadded), 0)
		if err != nil || len(fragment) < 4 {
			return errFrameSize
		}
		f.promised = binary.BigEndian.Uint32(fragment) &^ (1 << 31)
		f.blockOf, f.block = at, append(f.block[:0], fragment[4:]...)
		return f.blockEnds(at, v)
	case frameContinuation:
		f.block = append(f.block, p...)
		return f.blockEnds(at, v)
	case frameRSTStream:
		v.reset(at.stream)
	case frameSettings:
		for ; len(p) >= 6; p = p[6:] {
			v.settings(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:]))
		}
	case frameGoAway:
		v.goAway(binary.BigEndian.Uint32(p) &^ (1 << 31))
	}
	return nil
}

func (f *follower) blockEnds(at frame, v visitor) error {
	if f.inBlock = !at.has(flagEndHeaders); f.inBlock {
		return nil
	}
	block := f.block
	f.block = f.block[:0]
	if f.blockOf.kind == framePushPromise {
		return v.promise(f.blockOf.stream, f.promised, block)
	}
	return v.headers(f.blockOf.stream, block, f.blockOf.has(flagEndStream))
}

func skipOf(f frame) int {
	if f.has(flagPriority) {
		return 5
	}
	return 0
}

// unpad returns the payload without its padding and its first skip bytes.
func unpad(p []byte, padded bool, skip int) ([]byte, error) {
	pad := 0
	if padded {
		if len(p) < 1 {
			return nil, errFrameSize
		}
		pad, p = int(p[0]), p[1:]
	}
	if len(p) < pad+skip {
		return nil, errFrameSize
	}
	return p[skip : len(p)-pad], nil
}

// release lets go of the buffers between messages.
func (f *follower) release() {
	if f.left == 0 && !f.inBlock {
		f.payload, f.block = nil, nil
	}
}

// flood counts, second by second, the frames that cost the other side work and
// ask for nothing: SETTINGS, PING, RST_STREAM (rapid reset, CVE-2023-44487),
// CONTINUATION and DATA without a byte.
type flood struct {
	since time.Time
	n     int
}

// maxFlood is how many of them a second are let pass. A client that cancels
// requests in bulk stays below; Envoy's limit for resets is 500 of 1,000.
const maxFlood = 1000

func (f *flood) check(at frame, now func() time.Time) error {
	switch {
	case at.kind == frameSettings, at.kind == framePing, at.kind == frameRSTStream, at.kind == frameContinuation:
	case at.kind == frameData && at.length == 0 && !at.has(flagEndStream):
	default:
		return nil
	}
	if f.n++; f.n%64 != 0 && f.n <= maxFlood {
		return nil // the clock is looked at now and then
	}
	if t := now(); t.Sub(f.since) > time.Second {
		f.since, f.n = t, 1
	}
	if f.n > maxFlood {
		return errFlood
	}
	return nil
}
