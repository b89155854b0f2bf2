package http2

import (
	"encoding/binary"
	"errors"
	"sync"
)

// Events receives the events of a Follower. Slices are valid until the call returns. An error ends the connection.
type Events interface {
	Headers(stream uint32, block []byte, endStream bool) error
	PushPromise(stream, promised uint32, block []byte) error
	Data(at FrameHeader, payload []byte) // of a large frame as much as has come
	EndStream(stream uint32)             // END_STREAM on DATA
	Reset(stream uint32) error
	Settings(values []byte) // six bytes each
	SettingsAck()
	PingAck()
	WindowUpdate(stream, increment uint32)
	GoAway(lastStream uint32)
}

const (
	// WholeFrame is the largest frame that is passed on only when all of it has come, bytes: the size that every
	// endpoint must accept (RFC 9113, 4.2), and that most never exceed.
	WholeFrame = 16 << 10

	maxSettings = 100      // in one frame; there are less than twenty
	maxGoAway   = 16 << 10 // bytes
)

// Follower follows one direction of a connection from frame to frame. It passes on a frame when all of it has come,
// so that a frame of the proxy's can nearly always follow; only large ones are passed on in pieces.
type Follower struct {
	MaxBlock int    // bytes of a coded header block, with its continuations
	Guard    *Guard // limits of a client; nil for an app

	// Hold is called before the memory of an incomplete header block grows to this many bytes. If it returns false, the
	// block is not kept, and the result is ErrHeld. nil: nothing limits it but MaxBlock.
	Hold func(bytes int) bool

	Spoke bool // the first SETTINGS, which begins a direction, has passed

	left     uint32      // bytes of a large frame's payload still to come
	last     FrameHeader // the last frame, or the one that was refused
	awaits   bool        // a frame that is read is incomplete
	promised uint32      // by PUSH_PROMISE

	inBlock bool        // HEADERS or PUSH_PROMISE without END_HEADERS: CONTINUATION must follow
	blockOf FrameHeader // the frame that began the header block
	block   []byte      // of a header block in several frames, as much as has come
	pieces  int         // CONTINUATION frames of it
}

// AtBoundary reports whether a frame may be inserted.
func (f *Follower) AtBoundary() bool { return f.left == 0 && !f.inBlock }

// InHeaders reports whether a header block, or another frame that is read, is incomplete.
func (f *Follower) InHeaders() bool { return f.awaits || f.inBlock }

// Held is how many bytes of an incomplete header block are kept.
func (f *Follower) Held() int { return cap(f.block) }

// Drop frees an incomplete header block. Nothing can be followed afterwards.
func (f *Follower) Drop() {
	if cap(f.block) == largeBlock {
		blocks.Put((*[largeBlock]byte)(f.block[:largeBlock]))
	}
	f.block = nil
}

// blocks are reused, so that clients that begin blocks and leave make no garbage.
var blocks = sync.Pool{New: func() any { return new([largeBlock]byte) }}

// largeBlock is the size of those that grow beyond smallBlock, bytes.
const (
	smallBlock = 8 << 10
	largeBlock = 64 << 10
)

// Last returns the header of the last frame. After an error it is the frame that caused it.
func (f *Follower) Last() FrameHeader { return f.last }

// Release frees the buffer of header blocks unless one is incomplete.
func (f *Follower) Release() {
	if !f.inBlock {
		f.Drop()
	}
}

// Follow takes the next bytes and returns how many of them to pass on. An incomplete frame stays for the next call.
func (f *Follower) Follow(p []byte, to Events) (n int, err error) {
	f.awaits = false
	for {
		if f.left > 0 {
			m := uint32(min(uint64(f.left), uint64(len(p)-n)))
			n += int(m)
			if f.left -= m; f.left > 0 {
				return n, nil
			}
			f.payloadEnds(to)
		}
		if len(p)-n < HeaderLen {
			return n, nil
		}
		at := ReadHeader(p[n:])
		if err := f.Check(at); err != nil {
			f.last = at
			return n, err
		}
		payload := p[n+HeaderLen:]
		isWhole := uint64(len(payload)) >= uint64(at.Length)
		if !isWhole && (at.Length <= WholeFrame || at.isRead()) {
			f.awaits = at.isRead()
			return n, nil
		}
		f.last = at
		if f.Guard != nil {
			if err := f.Guard.Check(at); err != nil {
				return n, err
			}
		}
		n += HeaderLen
		if !at.isRead() {
			f.skip(at, payload[:min(len(payload), int(at.Length))], to)
			continue
		}
		if err := f.Read(at, payload[:at.Length], to); err != nil {
			return n, err
		}
		n += int(at.Length)
	}
}

// isRead reports whether the payload is read. Other payloads are skipped.
func (h FrameHeader) isRead() bool {
	switch h.Type {
	case Headers, PushPromise, Continuation, Settings, GoAway, RSTStream:
		return true
	}
	return false
}

// skip begins to skip a payload.
func (f *Follower) skip(at FrameHeader, payload []byte, to Events) {
	switch at.Type {
	case Ping:
		if at.Has(FlagAck) {
			to.PingAck()
		}
	case Data:
		to.Data(at, payload)
	case WindowUpdate:
		if at.Length == 4 { // any other length is an error for the receiver
			to.WindowUpdate(at.Stream, binary.BigEndian.Uint32(payload)&^(1<<31))
		}
	}
	if f.left = at.Length; f.left == 0 {
		f.payloadEnds(to)
	}
}

// payloadEnds is called at the end of a payload that was skipped.
func (f *Follower) payloadEnds(to Events) {
	if f.last.Type == Data && f.last.Has(FlagEndStream) {
		to.EndStream(f.last.Stream)
	}
}

// Check validates the fields of a frame header on which a Follower relies. The rest is left to the receiver of the
// frame.
func (f *Follower) Check(at FrameHeader) error {
	if f.inBlock != (at.Type == Continuation) || f.inBlock && at.Stream != f.blockOf.Stream {
		return ErrFrameOrder // RFC 9113, 6.10
	}
	isBlock := at.Type == Headers || at.Type == PushPromise || at.Type == Continuation
	switch {
	case at.Stream == 0 && (isBlock || at.Type == Data || at.Type == RSTStream), at.Stream != 0 && at.Type == Settings:
		return ErrStreamID
	case isBlock && len(f.block)+int(at.Length) > f.MaxBlock:
		return FloodBlock
	}
	n, fits := int(at.Length), true
	switch at.Type {
	case RSTStream:
		fits = n == 4
	case Settings:
		fits = ValidSettingsLen(n) && (n == 0 || !at.Has(FlagAck))
	case Ping:
		fits = n == 8
	case GoAway:
		fits = n >= 8 && n <= maxGoAway
	}
	if !fits {
		return ErrSize
	}
	return nil
}

// Read reads the whole payload of a frame that isRead.
func (f *Follower) Read(at FrameHeader, p []byte, to Events) error {
	switch at.Type {
	case Headers:
		fragment, err := at.Fragment(p)
		if err != nil {
			return err
		}
		return f.blockBegins(at, fragment, to)
	case PushPromise:
		fragment, err := Unpad(p, at.Has(FlagPadded), 0)
		if err != nil || len(fragment) < 4 {
			return ErrSize
		}
		f.promised = binary.BigEndian.Uint32(fragment) &^ (1 << 31)
		return f.blockBegins(at, fragment[4:], to)
	case Continuation:
		return f.blockGoesOn(at, p, to)
	case RSTStream:
		return to.Reset(at.Stream)
	case Settings:
		if at.Has(FlagAck) {
			to.SettingsAck()
			return nil
		}
		f.Spoke = true
		to.Settings(p)
	case GoAway:
		to.GoAway(binary.BigEndian.Uint32(p) &^ (1 << 31))
	}
	return nil
}

// blockBegins takes the first fragment of a header block, which mostly is all of it.
func (f *Follower) blockBegins(at FrameHeader, fragment []byte, to Events) error {
	f.blockOf = at
	if at.Has(FlagEndHeaders) {
		return f.blockEnds(fragment, to)
	}
	f.inBlock, f.pieces = true, 0
	f.block = f.block[:0]
	return f.keep(fragment)
}

// ErrHeld is the error of a header block for which Hold has no memory.
var ErrHeld = errors.New("no memory for a header block that is not complete")

// keep adds a fragment to the incomplete block.
func (f *Follower) keep(fragment []byte) error {
	if need := len(f.block) + len(fragment); need > cap(f.block) {
		grown := need
		if need > smallBlock {
			grown = max(need, largeBlock)
		}
		if f.Hold != nil && !f.Hold(grown) {
			f.Drop()
			return ErrHeld
		}
		var larger []byte
		if grown == largeBlock {
			larger = blocks.Get().(*[largeBlock]byte)[:0]
		} else {
			larger = make([]byte, 0, grown)
		}
		larger = append(larger, f.block...)
		f.Drop()
		f.block = larger
	}
	f.block = append(f.block, fragment...)
	return nil
}

// blockGoesOn takes the fragment of a CONTINUATION frame.
func (f *Follower) blockGoesOn(at FrameHeader, fragment []byte, to Events) error {
	if err := f.keep(fragment); err != nil {
		return err
	}
	if f.pieces++; f.Guard != nil && f.pieces > f.Guard.MaxContinuations {
		return FloodContinuation
	}
	if !at.Has(FlagEndHeaders) {
		return nil
	}
	f.inBlock = false
	err := f.blockEnds(f.block, to)
	f.block = f.block[:0]
	return err
}

func (f *Follower) blockEnds(block []byte, to Events) error {
	if f.blockOf.Type == PushPromise {
		return to.PushPromise(f.blockOf.Stream, f.promised, block)
	}
	return to.Headers(f.blockOf.Stream, block, f.blockOf.Has(FlagEndStream))
}
