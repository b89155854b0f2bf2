package pipe

import (
	"encoding/binary"

	"github.com/lastcall-dev/lastcall/internal/pipe/h2frame"
)

// follower follows one direction of HTTP/2 from frame to frame. A frame is passed
// on whole, so that nearly always a frame of ours can follow it; only large ones
// are passed on as they come.
type follower struct {
	left     uint32 // of a large frame's payload, bytes not seen yet
	at       frame  // the last one
	block    []byte // of a header block in several frames, so far
	inBlock  bool   // HEADERS or PUSH_PROMISE without END_HEADERS: CONTINUATION must follow
	blockOf  frame  // what began it
	pieces   int    // CONTINUATION frames of it
	awaits   bool   // the rest of a frame that is looked into
	promised uint32 // by PUSH_PROMISE
	maxBlock int    // bytes of a header block with its continuations, coded

	spoke bool   // the first SETTINGS, which begins the direction, has come
	guard *guard // against floods: the client's side only
}

// visitor is told of what matters. A header block may be kept only until the
// call returns.
type visitor interface {
	headers(stream uint32, block []byte, end bool) error
	promise(stream, promised uint32, block []byte) error
	data(at frame, payload []byte) // DATA; of large frames as much as is there
	end(stream uint32)             // END_STREAM on DATA
	reset(stream uint32) error     // RST_STREAM
	settings(values []byte)        // of six bytes each
	settingsAck()
	pingAck()
	goAway(last uint32)
}

const (
	// wholeFrame is the largest frame that is passed on only when all of it is
	// there, bytes: what every endpoint must take (RFC 9113, 4.2), and what most
	// never exceed.
	wholeFrame = 16 << 10

	maxSettings = 100      // in one frame; there are less than twenty
	maxGoAway   = 16 << 10 // bytes
)

// boundary says whether a frame of ours may be put in here.
func (f *follower) boundary() bool { return f.left == 0 && !f.inBlock }

// follow takes the next bytes and returns how many of them are to be passed on:
// an incomplete frame is left for the next time.
func (f *follower) follow(p []byte, v visitor) (n int, err error) {
	f.awaits = false
	for {
		if f.left > 0 {
			m := uint32(min(uint64(f.left), uint64(len(p)-n)))
			n += int(m)
			if f.left -= m; f.left > 0 {
				return n, nil
			}
			f.dataEnds(v)
		}
		if len(p)-n < h2frame.HeaderLen {
			return n, nil
		}
		at := readFrame(p[n:])
		if err := f.check(at); err != nil {
			f.at = at
			return n, err
		}
		rest := p[n+h2frame.HeaderLen:]
		whole := uint64(len(rest)) >= uint64(at.length)
		if !whole && (at.length <= wholeFrame || at.isRead()) {
			f.awaits = at.isRead()
			return n, nil
		}
		f.at = at
		if f.guard != nil {
			if err := f.guard.check(at); err != nil {
				return n, err
			}
		}
		n += h2frame.HeaderLen
		switch {
		case at.kind == h2frame.Ping && at.has(h2frame.FlagAck):
			v.pingAck()
		}
		switch {
		case at.kind == h2frame.Data:
			v.data(at, rest[:min(len(rest), int(at.length))])
			fallthrough
		case !at.isRead():
			if f.left = at.length; f.left == 0 {
				f.dataEnds(v)
			}
			continue
		}
		if err := f.read(at, rest[:at.length], v); err != nil {
			return n, err
		}
		n += int(at.length)
	}
}

// isRead says whether the payload is looked into.
func (f frame) isRead() bool {
	switch f.kind {
	case h2frame.Headers, h2frame.PushPromise, h2frame.Continuation, h2frame.Settings, h2frame.GoAway, h2frame.RSTStream:
		return true
	}
	return false
}

// dataEnds is the end of a frame that is not looked into.
func (f *follower) dataEnds(v visitor) {
	if f.at.kind == h2frame.Data && f.at.has(h2frame.FlagEndStream) {
		v.end(f.at.stream)
	}
}

// check looks at a frame's header: at what the following of frames relies on.
// The rest is between client and app.
func (f *follower) check(at frame) error {
	if f.inBlock != (at.kind == h2frame.Continuation) || f.inBlock && at.stream != f.blockOf.stream {
		return errFrameOrder
	}
	switch at.kind {
	case h2frame.Headers, h2frame.PushPromise, h2frame.Continuation:
		if at.stream == 0 {
			return errStreamID
		}
		if len(f.block)+int(at.length) > f.maxBlock {
			return floodBlock
		}
	case h2frame.Data:
		if at.stream == 0 {
			return errStreamID
		}
	case h2frame.RSTStream:
		if at.stream == 0 {
			return errStreamID
		}
		if at.length != 4 {
			return h2frame.ErrSize
		}
	case h2frame.Settings:
		if at.stream != 0 {
			return errStreamID
		}
		if at.length%6 != 0 || at.length > 6*maxSettings || at.has(h2frame.FlagAck) && at.length != 0 {
			return h2frame.ErrSize
		}
	case h2frame.Ping:
		if at.length != 8 {
			return h2frame.ErrSize
		}
	case h2frame.GoAway:
		if at.length < 8 || at.length > maxGoAway {
			return h2frame.ErrSize
		}
	}
	return nil
}

// read looks into a frame that is there as a whole.
func (f *follower) read(at frame, p []byte, v visitor) error {
	switch at.kind {
	case h2frame.Headers:
		skip := 0
		if at.has(h2frame.FlagPriority) {
			skip = 5
		}
		fragment, err := h2frame.Unpad(p, at.has(h2frame.FlagPadded), skip)
		if err != nil {
			return err
		}
		return f.blockBegins(at, fragment, v)
	case h2frame.PushPromise:
		fragment, err := h2frame.Unpad(p, at.has(h2frame.FlagPadded), 0)
		if err != nil || len(fragment) < 4 {
			return h2frame.ErrSize
		}
		f.promised = binary.BigEndian.Uint32(fragment) &^ (1 << 31)
		return f.blockBegins(at, fragment[4:], v)
	case h2frame.Continuation:
		f.block = append(f.block, p...)
		if f.pieces++; f.guard != nil && f.pieces > f.guard.MaxContinuations {
			return floodContinuation
		}
		if !at.has(h2frame.FlagEndHeaders) {
			return nil
		}
		f.inBlock = false
		err := f.blockEnds(f.block, v)
		f.block = f.block[:0]
		return err
	case h2frame.RSTStream:
		return v.reset(at.stream)
	case h2frame.Settings:
		if at.has(h2frame.FlagAck) {
			v.settingsAck()
			return nil
		}
		f.spoke = true
		v.settings(p)
	case h2frame.GoAway:
		v.goAway(binary.BigEndian.Uint32(p) &^ (1 << 31))
	}
	return nil
}

// blockBegins takes the first part of a header block, which is all of it in most
// cases.
func (f *follower) blockBegins(at frame, fragment []byte, v visitor) error {
	f.blockOf = at
	if at.has(h2frame.FlagEndHeaders) {
		return f.blockEnds(fragment, v)
	}
	f.inBlock, f.pieces = true, 0
	f.block = append(f.block[:0], fragment...)
	return nil
}

func (f *follower) blockEnds(block []byte, v visitor) error {
	if f.blockOf.kind == h2frame.PushPromise {
		return v.promise(f.blockOf.stream, f.promised, block)
	}
	return v.headers(f.blockOf.stream, block, f.blockOf.has(h2frame.FlagEndStream))
}

// release lets go of the buffer between header blocks.
func (f *follower) release() {
	if !f.inBlock {
		f.block = nil
	}
}
