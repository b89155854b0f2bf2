package pipe

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// Settings that matter here (RFC 9113, 6.5.2).
const (
	settingTableSize  = 1
	settingMaxStreams = 3
)

// upVisitor is told of the client's frames, with mu held.
type upVisitor struct{ c *conn }

func (v upVisitor) headers(id uint32, block []byte, end bool) error {
	c, h := v.c, v.c.h2
	known := h.streams.get(id)
	r := &h.request
	*r = streamHead{brief: len(h.streams) >= usualStreams || h.logged > maxQueuedBytes}
	if known == nil {
		r.stream = newStream(id, h.clock())
		r.stream.clientEnded = end
		if c.p.cfg.AccessLog != nil {
			r.entry = c.p.newEntry(c, nil, nil)
			r.entry.Protocol = "HTTP/2"
		}
	}
	if err := h.upTable.read(block, h.ofApp.allowed(), r); err != nil {
		return err
	}
	if known != nil { // trailers
		known.clientEnded = known.clientEnded || end
		c.closeIfEnded(known)
		return nil
	}
	s := r.stream
	if id <= h.last || id%2 == 0 || id > h.appLast {
		s.free() // closed already, not the client's, or refused beforehand: the app's business
		return nil
	}
	h.last = id
	h.meet(s, max(r.manners, mannersAbrupt))
	s.quiet = s.quiet || c.uncounted()
	s.entry = r.entry
	c.openStream(s)
	if !s.quiet {
		c.p.arrivals.Add(1)
	}
	c.in.stats.requests.Add(1)
	if len(h.streams) > usualStreams && c.p.extraStreams.Load() > int64(h.guard.MaxExtraStreams) {
		return floodStreams
	}
	return h.guard.begins(len(h.streams))
}

func (v upVisitor) promise(uint32, uint32, []byte) error { return errFrameOrder } // RFC 9113, 8.4: clients do not push

func (v upVisitor) data(at frame, _ []byte) {
	if v.c.p.cfg.AccessLog != nil {
		if s := v.c.h2.streams.get(at.stream); s != nil && s.entry != nil {
			s.entry.Received += uint64(at.length)
		}
	}
}

func (v upVisitor) end(id uint32) {
	if s := v.c.h2.streams.get(id); s != nil {
		s.clientEnded = true
		v.c.closeIfEnded(s)
	}
}

func (v upVisitor) reset(id uint32) error {
	s := v.c.h2.streams.get(id)
	v.c.in.stats.h2.rxResets.Add(1)
	err := v.c.h2.guard.resets(s)
	if s != nil {
		v.c.closeStream(s, accesslog.ClientReset)
	}
	return err
}

func (v upVisitor) settings(values []byte) { v.c.h2.ofClient.announce(values) }
func (v upVisitor) settingsAck()           { v.c.h2.ofApp.acknowledge() }
func (v upVisitor) pingAck()               {}
func (v upVisitor) goAway(uint32)          {}

// downVisitor is told of the app's frames, with wmu and mu held.
type downVisitor struct{ c *conn }

func (v downVisitor) headers(id uint32, block []byte, end bool) error {
	c, h := v.c, v.c.h2
	h.response = responseHead{}
	if err := h.dnTable.read(block, h.ofClient.allowed(), &h.response); err != nil {
		return err
	}
	s := h.streams.get(id)
	if s == nil {
		return nil
	}
	if s.status == 0 && h.response.status >= 200 {
		s.status = h.response.status
		if h.response.events && !h.response.encoded {
			s.events = eventstream.New(bytes.HasPrefix(s.line, []byte("GET ")) && s.status == http.StatusOK)
		}
		c.in.stats.responded(s.status)
		if s.entry != nil {
			s.entry.FirstByte = h.clock()
		}
	}
	s.serverEnded = s.serverEnded || end
	c.closeIfEnded(s)
	return nil
}

// promise takes a pushed response in.
func (v downVisitor) promise(_, promised uint32, block []byte) error {
	c, h := v.c, v.c.h2
	h.response = responseHead{}
	if err := h.dnTable.read(block, h.ofClient.allowed(), &h.response); err != nil {
		return err
	}
	if promised%2 != 0 || h.streams.get(promised) != nil {
		return nil // nonsense, for the client to judge
	}
	s := newStream(promised, h.clock())
	s.clientEnded = true
	s.line = append(s.line, "PUSH"...)
	c.openStream(s)
	return nil
}

func (v downVisitor) data(at frame, payload []byte) {
	v.c.h2.guard.responseData += 1 + uint64(at.length/wholeFrame)
	s := v.c.h2.streams.get(at.stream)
	if s == nil {
		return
	}
	if s.entry != nil {
		s.entry.Sent += uint64(at.length)
	}
	if !s.grpc && s.events == nil {
		return
	}
	content, err := http2.Unpad(payload, at.has(http2.FlagPadded), 0)
	lost := err != nil || len(payload) < int(at.length) // larger than clients ask for
	switch {
	case s.grpc:
		if s.messages.Follow(content); lost {
			s.messages.Lose()
		}
	case lost:
		s.events = nil
	default:
		s.events.Follow(content)
	}
}

func (v downVisitor) end(id uint32) {
	if s := v.c.h2.streams.get(id); s != nil {
		s.serverEnded = true
		v.c.closeIfEnded(s)
	}
}

func (v downVisitor) reset(id uint32) error {
	v.c.in.stats.h2.txResets.Add(1)
	if s := v.c.h2.streams.get(id); s != nil {
		v.c.closeStream(s, accesslog.StreamReset)
	}
	return nil
}

func (v downVisitor) settings(values []byte) {
	h := v.c.h2
	h.ofApp.announce(values)
	for ; len(values) >= 6; values = values[6:] {
		if binary.BigEndian.Uint16(values) == settingMaxStreams {
			h.guard.maxOpen = max(h.guard.maxOpen, int(min(binary.BigEndian.Uint32(values[2:]), noLimit)))
		}
	}
}

func (v downVisitor) settingsAck() {
	v.c.h2.ofClient.acknowledge()
	v.c.h2.guard.answered()
}

func (v downVisitor) pingAck() { v.c.h2.guard.answered() }

// goAway notes the app's own goodbye: streams beyond the last that it names are
// not served, and nobody says another word of them (RFC 9113, 6.8).
func (v downVisitor) goAway(last uint32) {
	c, h := v.c, v.c.h2
	h.appLast = min(h.appLast, last)
	for i := len(h.streams) - 1; i >= 0; i-- {
		if s := h.streams[i]; s.id > h.appLast && s.id%2 == 1 {
			c.closeStream(s, accesslog.StreamRefused)
		}
	}
}

// tableLimit is how large one side allows the other's header table to be. A limit
// is in force when it has been acknowledged (RFC 9113, 6.5.3); until then the
// larger of both is.
type tableLimit struct {
	latest, most uint32
	pending      int // SETTINGS not acknowledged
}

func newTableLimit() tableLimit { return tableLimit{latest: defaultTable, most: defaultTable} }

func (l *tableLimit) announce(values []byte) {
	for ; len(values) >= 6; values = values[6:] {
		if binary.BigEndian.Uint16(values) == settingTableSize {
			l.latest = binary.BigEndian.Uint32(values[2:])
			l.most = max(l.most, l.latest)
		}
	}
	l.pending++
}

func (l *tableLimit) acknowledge() {
	if l.pending--; l.pending <= 0 {
		l.pending, l.most = 0, l.latest
	}
}

func (l *tableLimit) allowed() uint32 { return l.most }

// streamHead gathers of a request's header block what has to be known.
type streamHead struct {
	stream       *stream          // nil for trailers
	entry        *accesslog.Entry // nil without an access log
	method, path bool             // seen
	brief        bool             // little is kept of it: there is much already
	manners      manners          // of the client, by its User-Agent
}

func (r *streamHead) field(name fieldName, value []byte) {
	s := r.stream
	if s == nil {
		return
	}
	if r.brief && name != fieldUserAgent && name != fieldContentType {
		value = value[:min(len(value), maxBrief)]
	}
	switch name {
	case fieldMethod:
		if !r.method {
			r.method = true
			value := value[:min(len(value), maxMethod)]
			if r.path { // they may come in any order
				s.line = slices.Insert(s.line, 0, ' ')
				s.line = slices.Insert(s.line, 0, value...)
			} else {
				s.line = append(append(s.line, value...), ' ')
			}
		}
	case fieldPath:
		if !r.path {
			r.path = true
			s.line = append(s.line, value[:min(len(value), maxLine-maxMethod)]...)
		}
	case fieldContentType:
		s.grpc = grpc.IsType(value)
	case fieldUserAgent:
		s.quiet = isQuiet(value)
		r.manners = mannersOf(value)
	}
	if e := r.entry; e != nil {
		switch name {
		case fieldMethod:
			e.Method = string(value)
		case fieldPath:
			e.Path = string(value)
		case fieldAuthority:
			e.Authority = string(value)
		case fieldUserAgent:
			if r.brief {
				value = value[:min(len(value), maxBrief)]
			}
			e.UserAgent = string(value)
		case fieldRequestID:
			e.RequestID = string(value)
		case fieldForwardedFor:
			e.ForwardedFor = string(value)
		}
	}
}

// maxBrief is how much of a field is kept for the report and the access log while the
// connection has much to keep already, bytes.
const maxBrief = 32

// maxMethod is how much of a method is kept for the report, bytes.
const maxMethod = 32

// responseHead gathers of a response's header block what has to be known.
type responseHead struct {
	status  int  // 0 when there is none
	events  bool // it is an event stream
	encoded bool // there is a Content-Encoding other than identity
}

func (r *responseHead) field(name fieldName, value []byte) {
	switch name {
	case fieldStatus:
		if r.status = 0; len(value) == 3 {
			r.status = digits(string(value))
		}
	case fieldContentType:
		r.events = isEventStream(value)
	case fieldContentEncoding:
		r.encoded = r.encoded || !equalFold(value, "identity")
	}
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
