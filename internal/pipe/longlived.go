package pipe

import (
	"cmp"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// Endings say how conversations end that do not end by themselves. Zero values
// take the defaults.
type Endings struct {
	// Spread is over how much of the last call the endings are spread, so that not
	// all clients connect elsewhere at once; default half of it. At most three
	// quarters are taken: the rest is for the endings themselves.
	Spread time.Duration

	// WebSocketCode is the status of our close frames: 1001 (default) or 1012.
	WebSocketCode int

	// WebSockets and EventStreams say what becomes of them when a drain has waited
	// long enough for new ones; EventStreams is for those that answer a GET, since
	// the others are answers with an end of their own. EndlessTypes are further media types, in small
	// letters, whose bodies consist of lines and have no end of their own when they
	// answer a GET: what holds for event streams holds for them.
	WebSockets, EventStreams LongLived
	EndlessTypes             []string
}

// LongLived says what becomes of conversations that have no end of their own.
type LongLived int

const (
	// Wait leaves them until the last call: they may end by themselves, and an app
	// that knows when to end them does it better than we.
	Wait LongLived = iota
	// CloseEarly ends them at the next boundary of their protocol, one after
	// another: their clients come back elsewhere while there is time, and the pod
	// need not stay until the last call.
	CloseEarly
)

// defaultEarlySpread is over how long the endings that do not wait for the last
// call are spread.
const defaultEarlySpread = time.Second

func (e *Endings) setDefaults() {
	e.WebSocketCode = cmp.Or(e.WebSocketCode, ws.CloseGoingAway)
}

// spread is over how much of a last call's window the endings are spread. They
// come at even distances: random ones would now and then come together.
func (e *Endings) spread(window time.Duration) time.Duration {
	if e.Spread == 0 {
		return window / 2
	}
	return min(e.Spread, window*3/4)
}
