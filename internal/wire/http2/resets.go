package http2

import "time"

// DefaultMaxResets is the default of Limits.MaxResets.
const DefaultMaxResets = 500

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
