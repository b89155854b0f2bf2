package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// flood is too much of something; as an error it ends the connection.
type flood uint8

const (
	floodControl flood = iota
	floodResets
	floodEmpty
	floodWindow
	floodPriority
	floodContinuation
	floodBlock
	floodHeaderList
	floodStreams
	floodSlow
	floods // how many there are
)

func (f flood) Error() string { return floodNames[f].error }

// floodNames has the names of Envoy's counters for the same, where it has one.
var floodNames = [floods]struct{ error, counter string }{
	floodControl:      {"too many PING and SETTINGS that wait for their answers, or RST_STREAM of nothing", "outbound_control_flood"},
	floodResets:       {"most streams are reset as soon as they begin", "rx_premature_resets_flood"},
	floodEmpty:        {"too many empty frames one after another", "inbound_empty_frames_flood"},
	floodWindow:       {"more WINDOW_UPDATE frames than there is data for", "inbound_window_update_frames_flood"},
	floodPriority:     {"more PRIORITY frames than there are streams for", "inbound_priority_frames_flood"},
	floodContinuation: {"too many CONTINUATION frames in a header block", "inbound_continuation_frames_flood"},
	floodBlock:        {"a header block that is too large", "header_overflow"},
	floodHeaderList:   {"a header list that is too large", "header_overflow"},
	floodSlow:         {"a header block that does not come to its end", "inbound_header_timeout"},
	floodStreams:      {"far more streams at once than the app allows", "inbound_streams_flood"},
}

// guard holds a client to its limits. The connection's mu is held.
type guard struct {
	*H2Limits
	now func() time.Time

	unanswered   int    // PING and SETTINGS
	strays       uint64 // RST_STREAM of streams that are not open
	empty        int    // one after another
	windows      uint64
	priorities   uint64
	streams      uint64 // begun
	responseData uint64 // DATA frames of the app; large ones count for several

	judged, premature int // streams, of them those reset at once; both halved now and then

	maxOpen int // streams at once that the app has allowed at most; 0: it has not said
}

// check looks at a frame of the client.
func (g *guard) check(at frame) error {
	switch at.kind {
	case http2.Data, http2.Headers, http2.Continuation:
		if at.length > 0 || at.has(http2.FlagEndStream) && at.kind != http2.Continuation || at.has(http2.FlagEndHeaders) && at.kind == http2.Continuation {
			g.empty = 0
			return nil
		}
		if g.empty++; g.empty > g.MaxEmptyFrames {
			return floodEmpty
		}
	case http2.Settings, http2.Ping:
		if at.has(http2.FlagAck) {
			return nil
		}
		if g.unanswered++; g.unanswered > g.MaxControl {
			return floodControl
		}
	case http2.WindowUpdate:
		g.windows++
		if g.MaxWindowUpdates < noLimit && g.windows > 5+2*(g.streams+uint64(g.MaxWindowUpdates)*g.responseData) {
			return floodWindow
		}
	case http2.Priority:
		g.priorities++
		if g.priorities > uint64(g.MaxPriorities)*(1+g.streams) {
			return floodPriority
		}
	}
	return nil
}

// answered takes note of an answer to a PING or SETTINGS that goes to the client.
func (g *guard) answered() { g.unanswered = max(0, g.unanswered-1) }

// begins counts a stream that the client has begun.
func (g *guard) begins(open int) error {
	g.streams++
	g.judged++
	if g.judged > 4*g.MaxResets { // what was long ago counts for less
		g.judged, g.premature = g.judged/2, g.premature/2
	}
	if open > g.MaxStreams || g.maxOpen > 0 && open > 2*g.maxOpen+100 {
		return floodStreams
	}
	return nil
}

// prematureTime is how old a stream is at least whose reset is nobody's flood.
// Envoy's premature_reset_min_stream_lifetime_seconds is 1.
const prematureTime = time.Second

// resets judges a RST_STREAM of the client; s is nil when there is no such stream.
func (g *guard) resets(s *stream) error {
	if s == nil {
		if g.strays++; g.strays > uint64(g.MaxControl)+g.streams {
			return floodControl
		}
		return nil
	}
	if s.serverEnded || g.now().Sub(s.began) >= prematureTime {
		return nil
	}
	if g.premature++; g.judged >= g.MaxResets && 2*g.premature > g.judged {
		return floodResets
	}
	return nil
}
