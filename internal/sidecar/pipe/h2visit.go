package pipe

import (
	"bytes"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// upVisitor handles the client's frames, with mu held.
type upVisitor struct{ c *conn }

func (v upVisitor) Headers(id uint32, block []byte, end bool) error {
	c, h := v.c, v.c.h2
	known := h.streams.get(id)
	r := &h.request
	*r = streamHead{most: maxBrief}
	if len(h.streams) < usualStreams && h.logged <= maxQueuedBytes {
		r.most = c.p.textRoom()
	}
	if known == nil {
		r.stream = newStream(id, h.clock())
		r.stream.clientEnded = end
		if c.p.cfg.AccessLog != nil {
			r.entry = c.p.newEntry(c, nil, nil)
			r.entry.Protocol = "HTTP/2"
		}
	}
	if err := h.upTable.Decode(block, h.ofApp.Allowed(), r); err != nil {
		return err
	}
	if known != nil { // trailers
		known.clientEnded = known.clientEnded || end
		c.h2.closeIfEndedLocked(known)
		return nil
	}
	s := r.stream
	if id <= h.last || id%2 == 0 || id > h.appLast {
		s.free() // closed already, not the client's, or refused beforehand: the app's business
		return nil
	}
	h.last = id
	h.closing.Client = h.closing.Client.Requested(s.grpc, r.forwarded)
	s.quiet = s.quiet || c.isIgnored()
	s.entry = r.entry
	c.h2.openStreamLocked(s)
	if !s.quiet {
		c.p.arrivals.Add(1)
	}
	c.in.stats.Requests.Add(1)
	if !c.p.fits(len(h.streams)) {
		return http2.FloodMemory
	}
	return h.guard.StreamBegins(len(h.streams))
}

func (v upVisitor) PushPromise(uint32, uint32, []byte) error {
	return http2.ErrFrameOrder
} // RFC 9113, 8.4: clients do not push

func (v upVisitor) Data(at http2.FrameHeader, _ []byte) {
	if v.c.p.cfg.AccessLog != nil {
		if s := v.c.h2.streams.get(at.Stream); s != nil && s.entry != nil {
			s.entry.Received += uint64(at.Length)
		}
	}
}

func (v upVisitor) EndStream(id uint32) {
	if s := v.c.h2.streams.get(id); s != nil {
		s.clientEnded = true
		v.c.h2.closeIfEndedLocked(s)
	}
}

func (v upVisitor) Reset(id uint32) error {
	s := v.c.h2.streams.get(id)
	v.c.in.stats.H2.RxResets.Add(1)
	if s == nil {
		return v.c.h2.guard.StrayReset()
	}
	err := v.c.h2.guard.StreamReset(time.Since(s.began), s.serverEnded)
	v.c.h2.closeStreamLocked(s, accesslog.ClientReset)
	return err
}

func (v upVisitor) Settings(values []byte) {
	v.c.h2.ofClient.Announce(values)
	v.c.h2.windows.Announce(values)
	if v.c.h2.last == 0 && v.c.h2.closing.Client == 0 { // grpclib and libcurl's copies of browsers send two
		v.c.h2.closing.Client = http2.ClientBySettings(values)
	}
}

func (v upVisitor) SettingsAck()  { v.c.h2.ofApp.Acknowledge() }
func (v upVisitor) PingAck()      {}
func (v upVisitor) GoAway(uint32) {}

func (v upVisitor) WindowUpdate(stream, increment uint32) {
	h := v.c.h2
	if stream == 0 {
		h.windows.Conn.Grows(increment)
	} else if s := h.streams.get(stream); s != nil {
		s.window.Grows(increment)
	}
}

// downVisitor handles the app's frames, with wmu and mu held.
type downVisitor struct{ c *conn }

func (v downVisitor) Headers(id uint32, block []byte, end bool) error {
	c, h := v.c, v.c.h2
	s := h.streams.get(id)
	h.response = responseHead{isGET: s != nil && bytes.HasPrefix(s.line, []byte("GET "))}
	if err := h.dnTable.Decode(block, h.ofClient.Allowed(), &h.response); err != nil {
		return err
	}
	if s == nil {
		return nil
	}
	if s.status == 0 && h.response.status >= 200 {
		s.status = h.response.status
		if !h.response.encoded {
			isSubscription := eventstream.IsSubscription(h.response.isGET, s.status)
			s.events = eventstream.Follow(h.response.media, isSubscription)
			if c.endsEarlyLocked() {
				c.lastWordRequested.Store(true)
			}
		}
		c.in.stats.Responded(s.status)
		if s.entry != nil {
			s.entry.FirstByte = h.clock()
		}
	}
	s.serverEnded = s.serverEnded || end
	c.h2.closeIfEndedLocked(s)
	return nil
}

// PushPromise adds a pushed response.
func (v downVisitor) PushPromise(_, promised uint32, block []byte) error {
	c, h := v.c, v.c.h2
	h.response = responseHead{}
	if err := h.dnTable.Decode(block, h.ofClient.Allowed(), &h.response); err != nil {
		return err
	}
	if promised%2 != 0 || h.streams.get(promised) != nil {
		return nil // nonsense, for the client to judge
	}
	s := newStream(promised, h.clock())
	s.clientEnded = true
	s.line = append(s.line, "PUSH"...)
	c.h2.openStreamLocked(s)
	return nil
}

func (v downVisitor) Data(at http2.FrameHeader, payload []byte) {
	h := v.c.h2
	h.guard.ResponseData(at.Length)
	h.windows.Conn.Sends(at.Length)
	s := h.streams.get(at.Stream)
	if s == nil {
		return
	}
	s.window.Sends(at.Length)
	if s.entry != nil {
		s.entry.Sent += uint64(at.Length)
	}
	if !s.grpc && s.events == nil {
		return
	}
	content, err := http2.Unpad(payload, at.Has(http2.FlagPadded), 0)
	lost := err != nil || len(payload) < int(at.Length) // larger than clients ask for
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

func (v downVisitor) EndStream(id uint32) {
	if s := v.c.h2.streams.get(id); s != nil {
		s.serverEnded = true
		v.c.h2.closeIfEndedLocked(s)
	}
}

func (v downVisitor) Reset(id uint32) error {
	v.c.in.stats.H2.TxResets.Add(1)
	if s := v.c.h2.streams.get(id); s != nil {
		v.c.h2.closeStreamLocked(s, accesslog.StreamReset)
	}
	return nil
}

func (v downVisitor) Settings(values []byte) {
	h := v.c.h2
	h.ofApp.Announce(values)
	for id, value := range http2.EachSetting(values) {
		if id == http2.SettingMaxConcurrentStreams {
			h.guard.AppAllows(value)
		}
	}
}

func (v downVisitor) SettingsAck() {
	v.c.h2.ofClient.Acknowledge()
	v.c.h2.windows.Acknowledge()
	v.c.h2.guard.Answered()
}

func (v downVisitor) PingAck()                    { v.c.h2.guard.Answered() }
func (v downVisitor) WindowUpdate(uint32, uint32) {}

// GoAway handles the app's GOAWAY: streams after the last one that it names are not served (RFC 9113, 6.8).
func (v downVisitor) GoAway(last uint32) {
	c, h := v.c, v.c.h2
	h.appLast = min(h.appLast, last)
	for _, s := range slices.Backward(h.streams) {
		if s.id > h.appLast && s.id%2 == 1 {
			c.h2.closeStreamLocked(s, accesslog.StreamRefused)
		}
	}
}
