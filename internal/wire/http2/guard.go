package http2

import "time"

// Flood is a way in which a client sends too much. As an error it ends the connection.
type Flood uint8

// Floods.
const (
	FloodControl Flood = iota
	FloodResets
	FloodEmpty
	FloodWindow
	FloodPriority
	FloodContinuation
	FloodBlock
	FloodHeaderList
	FloodStreams
	FloodMemory
	FloodSlow
	Floods // how many there are
)

// floods has the error of each flood, and the name of its counter: Envoy's where Envoy has one.
var floods = [Floods]struct{ error, counter string }{
	FloodControl: {"too many unanswered PING and SETTINGS frames, or RST_STREAM frames for closed streams",
		"outbound_control_flood"},
	FloodResets:       {"most streams are reset as soon as they begin", "rx_premature_resets_flood"},
	FloodEmpty:        {"too many empty frames in succession", "inbound_empty_frames_flood"},
	FloodWindow:       {"more WINDOW_UPDATE frames than the data warrants", "inbound_window_update_frames_flood"},
	FloodPriority:     {"more PRIORITY frames than the streams warrant", "inbound_priority_frames_flood"},
	FloodContinuation: {"too many CONTINUATION frames in a header block", "inbound_continuation_frames_flood"},
	FloodBlock:        {"a header block that is too large", "header_overflow"},
	FloodHeaderList:   {"a header list that is too large", "header_overflow"},
	FloodSlow:         {"a header block that is not completed in time", "inbound_header_timeout"},
	FloodStreams:      {"many more concurrent streams than the app allows", "inbound_streams_flood"},
	FloodMemory:       {"more concurrent streams than the memory of the proxy allows", "inbound_streams_flood"},
}

func (f Flood) Error() string { return floods[f].error }

// Counter returns the name of the metric that counts connections ended by the flood. Two floods share one.
func (f Flood) Counter() string { return floods[f].counter }

// IsHead reports whether a request head is too large.
func (f Flood) IsHead() bool {
	return f == FloodBlock || f == FloodHeaderList || f == FloodContinuation
}

// Guard holds a client to its limits.
type Guard struct {
	*Limits

	unanswered   int    // PING and SETTINGS
	strays       uint64 // RST_STREAM of streams that are not open
	empty        int    // empty frames in succession
	windows      uint64 // WINDOW_UPDATE
	priorities   uint64 // PRIORITY
	streams      uint64 // opened
	responseData uint64 // DATA frames of the app; a large one counts as several

	resets ResetRate

	maxStreams int // the app's SETTINGS_MAX_CONCURRENT_STREAMS, at its highest; 0: unknown
}

// Check counts a frame of the client.
func (g *Guard) Check(at FrameHeader) error {
	switch at.Type {
	case Data, Headers, Continuation:
		end := byte(FlagEndStream)
		if at.Type == Continuation {
			end = FlagEndHeaders
		}
		if at.Length > 0 || at.Has(end) {
			g.empty = 0
			return nil
		}
		if g.empty++; g.empty > g.MaxEmptyFrames {
			return FloodEmpty
		}
	case Settings, Ping:
		if at.Has(FlagAck) {
			return nil
		}
		if g.unanswered++; g.unanswered > g.MaxControl {
			return FloodControl
		}
	case WindowUpdate:
		g.windows++
		if g.MaxWindowUpdates < noLimit && g.windows > 5+2*(g.streams+uint64(g.MaxWindowUpdates)*g.responseData) {
			return FloodWindow
		}
	case Priority:
		g.priorities++
		if g.priorities > uint64(g.MaxPriorities)*(1+g.streams) {
			return FloodPriority
		}
	}
	return nil
}

// Answered counts an acknowledgement of the app's for PING or SETTINGS.
func (g *Guard) Answered() { g.unanswered = max(0, g.unanswered-1) }

// ResponseData counts a DATA frame of the app's with a payload of length bytes.
func (g *Guard) ResponseData(length uint32) { g.responseData += 1 + uint64(length/WholeFrame) }

// AppAllows takes the app's SETTINGS_MAX_CONCURRENT_STREAMS.
func (g *Guard) AppAllows(streams uint32) {
	g.maxStreams = max(g.maxStreams, int(min(streams, noLimit)))
}

// StreamBegins counts a stream that the client has opened; open is how many are open now.
func (g *Guard) StreamBegins(open int) error {
	g.streams++
	g.resets.StreamBegins(g.MaxResets)
	if open > g.MaxStreams || g.maxStreams > 0 && open > 2*g.maxStreams+100 {
		return FloodStreams
	}
	return nil
}

// StreamReset counts a client's RST_STREAM for a stream of that age. isAnswered is true if its response has ended.
func (g *Guard) StreamReset(age time.Duration, isAnswered bool) error {
	if isAnswered {
		return nil
	}
	return g.resets.StreamReset(age, g.MaxResets)
}

// StrayReset counts a RST_STREAM of the client's for a stream that is not open.
func (g *Guard) StrayReset() error {
	if g.strays++; g.strays > uint64(g.MaxControl)+g.streams {
		return FloodControl
	}
	return nil
}

// PrematureTime is the age from which a reset is not rapid: Envoy's premature_reset_min_stream_lifetime_seconds.
const PrematureTime = time.Second

// ResetRate judges a client by how many of its streams are reset as soon as they begin (rapid reset, CVE-2023-44487):
// more than half are too many. Each costs the app a request, although few streams are open at a time.
type ResetRate struct {
	streams, premature int // both are halved now and then, so that older streams count less
}

// StreamBegins counts a stream. The client's resets are judged from most streams on.
func (r *ResetRate) StreamBegins(most int) {
	if r.streams++; r.streams > 4*most {
		r.streams, r.premature = r.streams/2, r.premature/2
	}
}

// StreamReset counts the reset of a stream that has been open for age, without a complete response.
func (r *ResetRate) StreamReset(age time.Duration, most int) error {
	if age >= PrematureTime {
		return nil
	}
	if r.premature++; r.streams >= most && 2*r.premature > r.streams {
		return FloodResets
	}
	return nil
}
