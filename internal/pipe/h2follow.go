package pipe

import (
	"encoding/binary"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
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
		if len(p)-n < http2.HeaderLen {
			return n, nil
		}
		at := readFrame(p[n:])
		if err := f.check(at); err != nil {
			f.at = at
			return n, err
		}
		rest := p[n+http2.HeaderLen:]
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
		n += http2.HeaderLen
		switch {
		case at.kind == http2.Ping && at.has(http2.FlagAck):
			v.pingAck()
		}
		switch {
		case at.kind == http2.Data:
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
	case http2.Headers, http2.PushPromise, http2.Continuation, http2.Settings, http2.GoAway, http2.RSTStream:
		return true
	}
	return false
}

// dataEnds is the end of a frame that is not looked into.
func (f *follower) dataEnds(v visitor) {
	if f.at.kind == http2.Data && f.at.has(http2.FlagEndStream) {
		v.end(f.at.stream)
	}
}

// check looks at a frame's header: at what the following of frames relies on.
// The rest is between client and app.
func (f *follower) check(at frame) error {
	if f.inBlock != (at.kind == http2.Continuation) || f.inBlock && at.stream != f.blockOf.stream {
		return errFrameOrder
	}
	switch at.kind {
	case http2.Headers, http2.PushPromise, http2.Continuation:
		if at.stream == 0 {
			return errStreamID
		}
		if len(f.block)+int(at.length) > f.maxBlock {
			return floodBlock
		}
	case http2.Data:
		if at.stream == 0 {
			return errStreamID
		}
	case http2.RSTStream:
		if at.stream == 0 {
			return errStreamID
		}
		if at.length != 4 {
			return http2.ErrSize
		}
	case http2.Settings:
		if at.stream != 0 {
			return errStreamID
		}
		if at.length%6 != 0 || at.length > 6*maxSettings || at.has(http2.FlagAck) && at.length != 0 {
			return http2.ErrSize
		}
	case http2.Ping:
		if at.length != 8 {
			return http2.ErrSize
		}
	case http2.GoAway:
		if at.length < 8 || at.length > maxGoAway {
			return http2.ErrSize
		}
	}
	return nil
}

// read looks into a frame that is there as a whole.
func (f *follower) read(at frame, p []byte, v visitor) error {
	switch at.kind {
	case http2.Headers:
		skip := 0
		if at.has(http2.FlagPriority) {
			skip = 5
		}
		fragment, err := http2.Unpad(p, at.has(http2.FlagPadded), skip)
		if err != nil {
			return err
		}
		return f.blockBegins(at, fragment, v)
	case http2.PushPromise:
		fragment, err := http2.Unpad(p, at.has(http2.FlagPadded), 0)
		if err != nil || len(fragment) < 4 {
			return http2.ErrSize
		}
		f.promised = binary.BigEndian.Uint32(fragment) &^ (1 << 31)
		return f.blockBegins(at, fragment[4:], v)
	case http2.Continuation:
		f.block = append(f.block, p...)
		if f.pieces++; f.guard != nil && f.pieces > f.guard.MaxContinuations {
			return floodContinuation
		}
		if !at.has(http2.FlagEndHeaders) {
			return nil
		}
		f.inBlock = false
		err := f.blockEnds(f.block, v)
		f.block = f.block[:0]
		return err
	case http2.RSTStream:
		return v.reset(at.stream)
	case http2.Settings:
		if at.has(http2.FlagAck) {
			v.settingsAck()
			return nil
		}
		f.spoke = true
		v.settings(p)
	case http2.GoAway:
		v.goAway(binary.BigEndian.Uint32(p) &^ (1 << 31))
	}
	return nil
}

// blockBegins takes the first part of a header block, which is all of it in most
// cases.
func (f *follower) blockBegins(at frame, fragment []byte, v visitor) error {
	f.blockOf = at
	if at.has(http2.FlagEndHeaders) {
		return f.blockEnds(fragment, v)
	}
	f.inBlock, f.pieces = true, 0
	f.block = append(f.block[:0], fragment...)
	return nil
}

func (f *follower) blockEnds(block []byte, v visitor) error {
	if f.blockOf.kind == http2.PushPromise {
		return v.promise(f.blockOf.stream, f.promised, block)
	}
	return v.headers(f.blockOf.stream, block, f.blockOf.has(http2.FlagEndStream))
}

// release lets go of the buffer between header blocks.
func (f *follower) release() {
	if !f.inBlock {
		f.block = nil
	}
}
