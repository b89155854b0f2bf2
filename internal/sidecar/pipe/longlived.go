package pipe

import "time"

// Endings are the ways to end conversations without an end of their own. Zero values take the defaults.
type Endings struct {
	// Spread is the part of the last call over which the endings are spread, so that clients do not all reconnect at
	// once; default half of it, at most three quarters: the rest is for the endings themselves.
	Spread time.Duration

	// WebSocketCode is the status of our close frames: 1001 (default) or 1012.
	WebSocketCode int

	// WebSockets and EventStreams say when they are ended in a drain. EventStreams applies to responses to a GET:
	// others have an end of their own. EndlessTypes are further media types, in lower case, whose bodies consist of
	// lines and are endless in response to a GET: they are treated as event streams.
	WebSockets, EventStreams LongLived
	EndlessTypes             []string

	// AppFinishes is set if the app ends its opaque connections at its SIGTERM, so that the pipe does not. Otherwise it
	// ends, in a drain, those of TLS without HTTP/2 that are silent between two requests.
	AppFinishes bool
}

// LongLived is when conversations without an end of their own are ended.
type LongLived int

const (
	// Wait leaves them until the last call: they may end by themselves, and the app may know best when.
	Wait LongLived = iota
	// CloseEarly ends them at the next boundary of their protocol when the drain closes idle connections, one after
	// another: their clients reconnect elsewhere while there is time, and the pod can exit before the last call.
	CloseEarly
)

// defaultEarlySpread is the time over which early endings are spread.
const defaultEarlySpread = time.Second

// spread is the part of a last call's window over which endings are spread evenly: random ones might coincide.
func (e *Endings) spread(window time.Duration) time.Duration {
	if e.Spread == 0 {
		return window / 2
	}
	return min(e.Spread, window*3/4)
}
