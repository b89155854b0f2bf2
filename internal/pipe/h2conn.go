package pipe

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// h2 is what a connection knows when it carries HTTP/2. Bytes go through as they
// are; header blocks are read beside, so that requests have names, and frames of
// ours go in between frames of the app's.
//
// The streams are guarded by the connection's mu. down's follower, and what is
// said to the client, by its wmu: what the follower says of the next byte is true
// only if the bytes before it have been sent.
type h2 struct {
	streams map[uint32]*stream
	counted int    // of them, those that are not quiet
	last    uint32 // the highest of the client's that was forwarded

	up     follower
	upFlds *hpack.Decoder
	upMax  atomic.Uint32 // table size that the app allows the client's encoder

	down    follower
	dnFlds  *hpack.Decoder
	dnMax   atomic.Uint32
	goodbye goodbye
}

// goodbye is how far the goodbye has come.
type goodbye uint8

const (
	notSaid  goodbye = iota
	toBeSaid         // at the next boundary
	said             // GOAWAY with 2^31-1: no new connection's worth, but what comes is served
	final            // GOAWAY with the real last stream
)

// stream is one request of HTTP/2, or a pushed response.
type stream struct {
	id          uint32
	began       time.Time
	line        []byte
	grpc        bool
	quiet       bool
	clientEnded bool
	serverEnded bool
	status      int // of its final response; 0 before
	entry       *logEntry
}

// defaultTable is the size of a header table that nobody has said a word about
// (RFC 9113, 6.5.2).
const defaultTable = 4096

func newH2() *h2 {
	h := &h2{streams: make(map[uint32]*stream)}
	h.upFlds, h.dnFlds = hpack.NewDecoder(defaultTable, nil), hpack.NewDecoder(defaultTable, nil)
	h.upMax.Store(defaultTable)
	h.dnMax.Store(defaultTable)
	h.up.guarded = true
	return h
}

// becomeH2 follows HTTP/2 from the client's preface on.
func (c *conn) becomeH2() (wait, leave bool) {
	c.mu.Lock()
	if c.last || c.over {
		c.mu.Unlock()
		c.up.state = upDiscard
		return false, false
	}
	if c.h2 == nil { // the app may have spoken first
		c.h2 = newH2()
	}
	c.mode, c.fresh = modeH2, false
	c.arriving = true // until the app is there
	c.recount()
	c.mu.Unlock()
	c.clearHeadDeadline()
	c.up.state = upH2
	b := c.up.buf
	if c.app == nil {
		if err := c.dial(); err != nil { // what comes is read and answered
			c.setArriving(false)
			b.r += len(preface)
			return false, false
		}
	}
	if err := c.app.send(b.b[b.r:b.r+len(preface)], false); err != nil {
		c.up.state = upDiscard
	}
	b.r += len(preface)
	c.setArriving(false)
	if c.p.draining.Load() { // Drain may have passed before we were HTTP/2
		c.sayGoAway()
	}
	return false, false
}

// forwardFrames forwards what the client has sent as far as it is understood.
func (c *conn) forwardFrames() (wait bool) {
	b := c.up.buf
	n, err := c.h2.up.follow(b.bytes(), upVisitor{c})
	if c.app == nil { // it has refused: each request is told so
		b.r += n
		c.mu.Lock()
		asked := len(c.h2.streams) > 0
		c.mu.Unlock()
		if err == nil && !asked {
			return true
		}
		c.failStreams(flagConnectFailed, "upstream_reset_before_response_started{remote_connection_failure}", endRefused)
		c.up.state = upDiscard
		return false
	}
	if n > 0 {
		if sendErr := c.app.send(b.b[b.r:b.r+n], false); sendErr != nil {
			c.up.state = upDiscard // the app's own end says how it goes on
		}
		b.r += n
	}
	if err != nil {
		c.up.state = upDiscard
		b.r = b.w
		c.in.stats.refused.Add(1)
		c.endH2(codeOf(err), err.Error())
		return false
	}
	c.h2.up.release()
	c.finishIfDrained()
	return true
}

// passFrames passes on what the app has sent as far as it is understood. It
// returns false when the connection is over or the app is not understood.
func (c *conn) passFrames() bool {
	b := c.down.buf
	c.wmu.Lock()
	if c.isOver() {
		c.wmu.Unlock()
		return false
	}
	n, err := c.h2.down.follow(b.bytes(), downVisitor{c})
	if n > 0 {
		if sendErr := c.client.send(b.b[b.r:b.r+n], false); sendErr != nil {
			c.wmu.Unlock()
			return false
		}
		b.r += n
	}
	if err == nil && c.h2.goodbye == toBeSaid {
		c.sayGoAwayLocked()
	}
	c.h2.down.release()
	c.wmu.Unlock()
	if err != nil {
		c.down.err = bad(err.Error())
		return false
	}
	return !c.finishIfDrained()
}

// upVisitor is told of the client's frames, in up's goroutine.
type upVisitor struct{ c *conn }

func (v upVisitor) headers(id uint32, block []byte, end bool) error {
	c, h := v.c, v.c.h2
	s := &stream{id: id, began: time.Now(), clientEnded: end}
	fields := requestFields{s: s}
	if c.p.cfg.AccessLog != nil {
		fields.log = c.p.newEntry(c, nil, nil)
	}
	h.upFlds.SetAllowedMaxDynamicTableSize(h.upMax.Load())
	h.upFlds.SetEmitFunc(fields.take)
	if _, err := h.upFlds.Write(block); err != nil {
		return err
	}
	if err := h.upFlds.Close(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := h.streams[id]; known != nil { // trailers
		known.clientEnded = known.clientEnded || end
		c.closeIfEnded(known)
		return nil
	}
	if id <= h.last || id%2 == 0 {
		return nil // of a stream that is closed already: a race, the app's business
	}
	h.last = id
	s.quiet = s.quiet || c.uncounted()
	s.entry = fields.entry()
	h.streams[id] = s
	if !s.quiet {
		h.counted++
		c.p.arrivals.Add(1)
	}
	c.in.stats.requests.Add(1)
	if c.busy {
		c.p.changed()
	}
	c.recount()
	return nil
}

func (v upVisitor) promise(uint32, uint32, []byte) error { return errFrameOrder } // RFC 9113, 8.4: clients do not push

func (v upVisitor) end(id uint32) {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if s := v.c.h2.streams[id]; s != nil {
		s.clientEnded = true
		v.c.closeIfEnded(s)
	}
}

func (v upVisitor) reset(id uint32) {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if s := v.c.h2.streams[id]; s != nil {
		v.c.closeStream(s, flagDownstreamClosed, "downstream_remote_reset")
	}
}

func (v upVisitor) settings(id uint16, value uint32) {
	if id == settingTableSize {
		v.c.h2.dnMax.Store(value)
	}
}

func (v upVisitor) goAway(uint32) {}

const settingTableSize = 1

// downVisitor is told of the app's frames, in down's goroutine with wmu held.
type downVisitor struct{ c *conn }

func (v downVisitor) headers(id uint32, block []byte, end bool) error {
	c, h := v.c, v.c.h2
	status := 0
	h.dnFlds.SetAllowedMaxDynamicTableSize(h.dnMax.Load())
	h.dnFlds.SetEmitFunc(func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status = digits(f.Value)
		}
	})
	if _, err := h.dnFlds.Write(block); err != nil {
		return err
	}
	if err := h.dnFlds.Close(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := h.streams[id]
	if s == nil {
		return nil
	}
	if s.status == 0 && status >= 200 {
		s.status = status
		c.in.stats.responded(status)
		if s.entry != nil {
			s.entry.firstByte = time.Now()
		}
	}
	s.serverEnded = s.serverEnded || end
	c.closeIfEnded(s)
	return nil
}

// promise takes a pushed response in. The names in its block are for the client;
// they are read to keep the table true.
func (v downVisitor) promise(_, promised uint32, block []byte) error {
	c, h := v.c, v.c.h2
	s := &stream{id: promised, began: time.Now(), clientEnded: true}
	h.dnFlds.SetEmitFunc(requestFields{s: s}.take)
	if _, err := h.dnFlds.Write(block); err != nil {
		return err
	}
	if err := h.dnFlds.Close(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.streams[promised] = s
	h.counted++
	c.recount()
	return nil
}

func (v downVisitor) end(id uint32) {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if s := v.c.h2.streams[id]; s != nil {
		s.serverEnded = true
		v.c.closeIfEnded(s)
	}
}

func (v downVisitor) reset(id uint32) {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if s := v.c.h2.streams[id]; s != nil {
		v.c.closeStream(s, flagUpstreamReset, "upstream_reset_before_response_started{remote_reset}")
	}
}

func (v downVisitor) settings(id uint16, value uint32) {
	if id == settingTableSize {
		v.c.h2.upMax.Store(value)
	}
}

func (v downVisitor) goAway(uint32) {}

// closeIfEnded forgets a stream that both sides have ended. mu is held.
func (c *conn) closeIfEnded(s *stream) {
	if s.clientEnded && s.serverEnded {
		c.closeStream(s, "", "via_upstream")
	}
}

// closeStream forgets a stream. mu is held.
func (c *conn) closeStream(s *stream, flag, details string) {
	delete(c.h2.streams, s.id)
	if !s.quiet {
		c.h2.counted--
	}
	c.p.finishEntry(s.entry, s.status, flag, details)
	c.recount()
}

// requestFields reads of a request's header block what has to be known.
type requestFields struct {
	s   *stream
	log *logEntry
}

func (f requestFields) take(h hpack.HeaderField) {
	switch h.Name {
	case ":method":
		f.s.line = append(f.s.line[:0], h.Value...)
		f.s.line = append(f.s.line, ' ')
	case ":path":
		f.s.line = append(f.s.line, h.Value[:min(len(h.Value), maxLine)]...)
	case "content-type":
		f.s.grpc = isGRPC(h.Value)
	case "user-agent":
		f.s.quiet = isQuiet([]byte(h.Value))
	}
	if f.log == nil {
		return
	}
	switch h.Name {
	case ":method":
		f.log.method = h.Value
	case ":path":
		f.log.path = h.Value
	case ":authority":
		f.log.authority = h.Value
	case "user-agent":
		f.log.userAgent = h.Value
	case "x-request-id":
		f.log.requestID = h.Value
	case "x-forwarded-for":
		f.log.forwardedFor = h.Value
	}
}

func (f requestFields) entry() *logEntry {
	if f.log != nil {
		f.log.protocol = "HTTP/2"
	}
	return f.log
}

// isGRPC says whether a content-type is application/grpc or one of its kind.
func isGRPC(contentType string) bool {
	const grpc = "application/grpc"
	return len(contentType) >= len(grpc) && contentType[:len(grpc)] == grpc &&
		(len(contentType) == len(grpc) || contentType[len(grpc)] == '+' || contentType[len(grpc)] == ';')
}

func digits(s string) (n int) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// describeStreams names the open streams for the report, the oldest first. mu is
// held.
func (c *conn) describeStreams() []drain.Conversation {
	var out []drain.Conversation
	for _, s := range c.openStreams() {
		if s.quiet {
			continue
		}
		protocol := "http/2"
		if s.grpc {
			protocol = "grpc"
		}
		out = append(out, drain.Conversation{
			Peer: c.client.RemoteAddr().String(), Protocol: protocol,
			Request: string(s.line), Age: drain.Millis(time.Since(s.began)),
		})
	}
	return out
}

// openStreams are in the order of their identifiers. mu is held.
func (c *conn) openStreams() []*stream {
	out := make([]*stream, 0, len(c.h2.streams))
	for _, s := range c.h2.streams {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *stream) int { return int(a.id) - int(b.id) })
	return out
}
