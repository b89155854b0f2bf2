package http2

// Limits bound what a client may ask for. A client that exceeds one gets GOAWAY with ENHANCE_YOUR_CALM and its
// connection ends: a single stream cannot be refused, since the app's decoder needs its header block. Zero values
// select the defaults, negative values lift a limit. The only limit for the app is on its header blocks.
type Limits struct {
	// MaxHeaderList bounds the header list of a request, bytes as SETTINGS_MAX_HEADER_LIST_SIZE counts them
	// (RFC 9113, 6.5.2: 32 more for each field, so their number is bounded too); default 256 KiB. A few indexed
	// bytes can stand for a list of any size. Envoy refuses a stream at 60 KiB, Go at 1 MiB.
	MaxHeaderList int

	// MaxHeaderBlock bounds a coded header block including CONTINUATION, bytes; default 64 KiB.
	MaxHeaderBlock int

	// MaxContinuations bounds the CONTINUATION frames of a header block (CVE-2024-27316); default 8, as nghttp2's.
	// Eight frames of the usual size contain 144 KiB.
	MaxContinuations int

	// MaxControl bounds the unanswered PING and SETTINGS frames; default 1,000, as Envoy's. A client that reads the
	// answers may send any number: gRPC does so thousands of times a second on a fast network. It also bounds
	// RST_STREAM frames for closed streams, in addition to one for each stream.
	MaxControl int

	// MaxResets is the number of streams from which on a client is judged by how many of them it resets within a
	// second and before the response has ended (rapid reset, CVE-2023-44487): more than half are too many. Default
	// 500, as Envoy's.
	MaxResets int

	// MaxEmptyFrames bounds empty DATA, HEADERS and CONTINUATION frames in succession; default 100. Envoy allows 1,
	// which some clients exceed by flushing empty buffers.
	MaxEmptyFrames int

	// MaxWindowUpdates bounds the WINDOW_UPDATE frames for each DATA frame of the app; default 10. As in Envoy, each
	// stream and each DATA frame counts twice, and five frames are free.
	MaxWindowUpdates int

	// MaxPriorities bounds the PRIORITY frames for each stream, with one stream added; default 100, as Envoy's.
	MaxPriorities int

	// MaxStreams bounds the concurrent streams of a connection, whatever the app allows; default 65,536. If the app's
	// SETTINGS_MAX_CONCURRENT_STREAMS is lower, the limit is twice that value plus 100: up to there the app refuses.
	MaxStreams int
}

// DefaultMaxResets is the default of Limits.MaxResets.
const DefaultMaxResets = 500

// noLimit stands for a limit that is lifted.
const noLimit = 1 << 30

// DefaultLimits returns the defaults.
func DefaultLimits() (l Limits) {
	l.SetDefaults()
	return l
}

// SetDefaults replaces zero and negative values.
func (l *Limits) SetDefaults() {
	for value, byDefault := range map[*int]int{
		&l.MaxHeaderList:    256 << 10,
		&l.MaxHeaderBlock:   64 << 10,
		&l.MaxContinuations: 8,
		&l.MaxControl:       1000,
		&l.MaxResets:        DefaultMaxResets,
		&l.MaxEmptyFrames:   100,
		&l.MaxWindowUpdates: 10,
		&l.MaxPriorities:    100,
		&l.MaxStreams:       1 << 16,
	} {
		switch {
		case *value == 0:
			*value = byDefault
		case *value < 0:
			*value = noLimit
		}
	}
}
