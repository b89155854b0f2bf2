package pipe

// H2Limits bound what a client of HTTP/2 may ask of the app without asking for
// anything. Beyond a limit the client gets GOAWAY with ENHANCE_YOUR_CALM and the
// connection ends: a single stream cannot be refused without its header block
// missing in the app's table. Zero values take the defaults, negative ones lift
// the limit. What the app sends is only held to a size of header blocks.
type H2Limits struct {
	// MaxHeaderList is how large a request's header list may be, bytes as
	// SETTINGS_MAX_HEADER_LIST_SIZE counts them (RFC 9113, 6.5.2: 32 more for each
	// field, so it bounds their number too); default 256 KiB. A few indexed bytes
	// can stand for a list of any size. Envoy refuses the stream at 60 KiB, Go at
	// 1 MiB.
	MaxHeaderList int

	// MaxHeaderBlock is how large a request's header block may be as it is coded,
	// CONTINUATION included, bytes; default 64 KiB.
	MaxHeaderBlock int

	// MaxContinuations is how many CONTINUATION frames a header block may have
	// (CVE-2024-27316); default 8, as nghttp2's. Frames of the usual size hold
	// 144 KiB then.
	MaxContinuations int

	// MaxControl is how many PING and SETTINGS frames of a client may wait for
	// their answers; default 1,000, as many as Envoy lets wait. Whoever reads the
	// answers may ask as often as he likes: gRPC does so thousands of times a second
	// on a fast network. So many RST_STREAM of streams that are not open may come,
	// too, and one more for each stream.
	MaxControl int

	// MaxResets is after how many streams a client is judged by those that it
	// resets within a second of their beginning and before their response has
	// ended (rapid reset, CVE-2023-44487): more than half are too many. Default
	// 500, as Envoy's.
	MaxResets int

	// MaxEmptyFrames is how many DATA, HEADERS or CONTINUATION frames may come one
	// after another with nothing in them; default 100. Envoy allows 1, which some
	// clients exceed by flushing what they do not have.
	MaxEmptyFrames int

	// MaxWindowUpdates is how many WINDOW_UPDATE frames are allowed for each DATA
	// frame of the app; default 10. As with Envoy each stream and each DATA frame
	// adds twice its due, and five are free.
	MaxWindowUpdates int

	// MaxPriorities is how many PRIORITY frames are allowed for each stream, with
	// one stream more than there are; default 100, as Envoy's.
	MaxPriorities int

	// MaxStreams is how many streams a connection may have open at once, whatever the app allows;
	// default 65,536. Where the app's SETTINGS_MAX_CONCURRENT_STREAMS says less,
	// twice that and 100 more: up to there it is the app that refuses.
	MaxStreams int

	// MaxExtraStreams is how many streams all connections of a pipe may have open
	// beyond usualStreams each; default 32,768. The connection that opens
	// one more then is ended: each takes memory (about 300 bytes), however slow the app is.
	MaxExtraStreams int
}

// usualStreams is how many streams of a connection are never too many. Servers allow
// 100 to 1,000 (SETTINGS_MAX_CONCURRENT_STREAMS).
const usualStreams = 1000

// maxAppBlock bounds header blocks of the app, bytes of their coded form.
const maxAppBlock = 256 << 10

// noLimit stands for a limit that has been lifted.
const noLimit = 1 << 30

// DefaultH2Limits are those that hold when nothing is said.
func DefaultH2Limits() H2Limits {
	return H2Limits{
		MaxHeaderList:    256 << 10,
		MaxHeaderBlock:   64 << 10,
		MaxContinuations: 8,
		MaxControl:       1000,
		MaxResets:        500,
		MaxEmptyFrames:   100,
		MaxWindowUpdates: 10,
		MaxPriorities:    100,
		MaxStreams:       1 << 16,
		MaxExtraStreams:  1 << 15,
	}
}

// largestHeld is the largest frame of a client that is held until all of it is
// there, bytes.
func (l *H2Limits) largestHeld() int { return min(l.MaxHeaderBlock, 1<<24) }

func (l *H2Limits) setDefaults() {
	standard := DefaultH2Limits()
	for value, standard := range map[*int]int{
		&l.MaxHeaderList:    standard.MaxHeaderList,
		&l.MaxHeaderBlock:   standard.MaxHeaderBlock,
		&l.MaxContinuations: standard.MaxContinuations,
		&l.MaxControl:       standard.MaxControl,
		&l.MaxResets:        standard.MaxResets,
		&l.MaxEmptyFrames:   standard.MaxEmptyFrames,
		&l.MaxWindowUpdates: standard.MaxWindowUpdates,
		&l.MaxPriorities:    standard.MaxPriorities,
		&l.MaxStreams:       standard.MaxStreams,
		&l.MaxExtraStreams:  standard.MaxExtraStreams,
	} {
		switch {
		case *value == 0:
			*value = standard
		case *value < 0:
			*value = noLimit
		}
	}
}
