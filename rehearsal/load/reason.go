package load

import (
	"strings"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Reason is why a request was lost. A status of 400 or more is a reason as well: "503"; so is gRPC's: "UNAVAILABLE".
type Reason string

// The reasons.
const (
	Refused     Reason = "refused"               // no connection
	Dropped     Reason = "no response"           // the connection was reset or closed before the response
	Truncated   Reason = "truncated"             // within the response, and the client can see it
	Short       Reason = "silently short"        // a part of the response that looks complete
	Late        Reason = "timeout"               // no complete response within the time
	Unavailable Reason = "UNAVAILABLE"           // gRPC: no connection, or it ended before the status
	NoClose     Reason = "ended without a close" // a stream or WebSocket that was not ended in order
)

// reason judges an outcome; empty: the client got what it should.
func reason(r Request, ref Reference, o traffic.Outcome) Reason {
	switch o.Failure {
	case "":
		if !r.IsEndless() && ref.isShort(o) {
			return Short
		}
		return ""
	case traffic.Refused, traffic.NoPods:
		return Refused
	case traffic.Ended, traffic.NotSent:
		return Dropped
	case traffic.Truncated:
		if r.Protocol == traffic.Events {
			return NoClose
		}
		return Truncated
	case traffic.Late:
		return Late
	case traffic.NoClose:
		return NoClose
	}
	return Reason(o.Failure)
}

// IsStatus reports whether it is a response of 500 or more.
func (r Reason) IsStatus() bool { return len(r) == 3 && strings.HasPrefix(string(r), "5") }
