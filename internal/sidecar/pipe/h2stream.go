package pipe

import (
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// usualStreams is how many streams of a connection keep their whole request lines. Servers allow 100 to 1,000.
const usualStreams = 1000

// streamMemory is the memory of an open stream, and entryMemory that of its access log entry, bytes.
const (
	streamMemory = 768
	entryMemory  = 512
)

// fits reports whether a connection with so many open streams may keep the last of them: an eighth of the memory that
// the streams of all connections have left, so that many connections with many streams leave some to others. One stream
// a connection takes less than the connection itself.
func (p *Pipe) fits(streams int) bool {
	return streams == 1 || int64(streams)*p.streamMemory() <= p.streamsLeft()/8
}

// streamMemory is the memory of an open stream without the text of its access log entry, bytes.
func (p *Pipe) streamMemory() int64 {
	if p.cfg.AccessLog != nil {
		return streamMemory + entryMemory
	}
	return streamMemory
}

// streamsLeft is how many bytes further streams may hold.
func (p *Pipe) streamsLeft() int64 { return p.budget.Limit()/2 - p.streamsHeld.Load() }

// stream is a request, or a pushed response.
type stream struct {
	id          uint32
	window      http2.Window // of the response
	began       time.Time
	line        []byte // method and path, cut at maxLine
	grpc        bool
	quiet       bool
	clientEnded bool
	serverEnded bool
	status      int // of its final response; 0 before
	messages    grpc.Messages
	events      *eventstream.Stream // nil unless the response can be followed as events
	finished    bool                // no more of it is passed on
	held        int                 // bytes, while it is open
	entry       *accesslog.Entry
}

// isSubscription reports whether the stream is one that its client requests again after any end.
func (s *stream) isSubscription() bool {
	return s.events != nil && s.events.Reconnects() && s.clientEnded && !s.serverEnded
}

// streamPool reuses streams, so that an idle connection holds none.
var streamPool = sync.Pool{New: func() any { return new(stream) }}

func newStream(id uint32, began time.Time) *stream {
	s := streamPool.Get().(*stream)
	*s = stream{id: id, began: began, line: s.line[:0]}
	return s
}

func (s *stream) free() {
	s.entry, s.events = nil, nil
	streamPool.Put(s)
}

// streams are the open streams of a connection, in the order of their identifiers.
type streams []*stream

func (list streams) find(id uint32) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(s *stream, id uint32) int { return int(s.id) - int(id) })
}

// get returns nil if there is no such stream.
func (list streams) get(id uint32) *stream {
	if i, found := list.find(id); found {
		return list[i]
	}
	return nil
}

// openStreamLocked adds a stream. mu is held.
func (h *h2) openStreamLocked(s *stream) {
	i, _ := h.streams.find(s.id)
	h.streams = slices.Insert(h.streams, i, s)
	s.held = streamMemory
	if s.entry != nil {
		s.held += entryMemory + s.entry.Held()
		h.logged += s.entry.Held()
	}
	h.c.p.streamsHeld.Add(int64(s.held))
	if !s.quiet {
		h.counted++
	}
	h.opened++
	h.c.growsLocked()
}

// closeIfEndedLocked removes a stream that both sides have ended. mu is held.
func (h *h2) closeIfEndedLocked(s *stream) {
	if s.clientEnded && s.serverEnded {
		h.closeStreamLocked(s, accesslog.ViaUpstream)
	}
}

// closeStreamLocked removes a stream, counts and logs it. The caller recounts. mu is held.
func (h *h2) closeStreamLocked(s *stream, outcome accesslog.Outcome) {
	if i, found := h.streams.find(s.id); found {
		if s.entry != nil {
			h.logged -= s.entry.Held()
		}
		h.c.p.streamsHeld.Add(-int64(s.held))
		h.streams = slices.Delete(h.streams, i, i+1)
	}
	if !s.quiet {
		h.counted--
	}
	if h.c.p.closing.holds() {
		h.c.idleSince = time.Now() // although the connection stays busy: see awaited
	}
	h.c.in.stats.Durations.Observe(s.protocol(), s.status, h.clock().Sub(s.began))
	h.c.p.writeEntry(s.entry, s.status, outcome)
	s.free()
}

// closeStreamsLocked removes all streams. mu is held.
func (h *h2) closeStreamsLocked(outcome accesslog.Outcome) {
	for _, s := range slices.Backward(h.streams) {
		h.closeStreamLocked(s, outcome)
	}
}

// describeStreamsLocked describes the open streams that count, the oldest first. mu is held.
func (h *h2) describeStreamsLocked() (out []drain.Conversation) {
	for _, s := range h.streams {
		if !s.quiet {
			out = append(out, h.describe(s))
		}
	}
	return out
}

func (h *h2) describe(s *stream) drain.Conversation {
	return drain.Conversation{Peer: h.c.client.RemoteAddr().String(), Protocol: s.protocol().String(),
		Request: string(s.line), Age: drain.Millis(time.Since(s.began))}
}

func (s *stream) protocol() counters.Protocol {
	if s.grpc {
		return counters.GRPC
	}
	return counters.HTTP2
}
