package drain

import (
	"context"
	"time"
)

// DataPlane is whatever carries the inbound traffic of the pod: the embedded
// pipe, an Envoy, or the app's own sockets. Run asks it to say goodbye, watches
// its activity and ends it.
//
// Every method may be called from one goroutine at a time (Run's). A method
// that talks to the outside honours its context; Run gives each call a
// deadline, so that nothing can hang a termination.
type DataPlane interface {
	// Drain makes the data plane say goodbye on every inbound conversation
	// (Connection: close, GOAWAY, …) while it goes on accepting new ones.
	// Outbound conversations are not touched.
	Drain(ctx context.Context) error

	// Resume takes the drain back as far as it has come: no more goodbyes, idle
	// connections are kept again, and what StopAccepting or LastCall closed is
	// listened on again.
	Resume(ctx context.Context) error

	// Activity looks at the inbound conversations of this moment. An error, or
	// an answer that is not Known, counts as busy: never end on ignorance.
	Activity(ctx context.Context) (Activity, error)

	// Changes carries a signal after every change of activity that follows
	// Drain; signals may be merged, none is lost. A data plane that cannot push
	// returns nil and is polled every Config.PollInterval.
	Changes() <-chan struct{}

	// CloseIdle ends, in an orderly way, the inbound conversations that have
	// been idle for at least idleFor, and from now on each that becomes so.
	CloseIdle(ctx context.Context, idleFor time.Duration) error

	// StopAccepting closes the inbound listeners; what is open goes on. Whoever
	// still comes is refused, which every client may safely retry elsewhere.
	StopAccepting(ctx context.Context) error

	// Open lists the busy inbound conversations, the oldest first, at most most.
	Open(ctx context.Context, most int) ([]Conversation, error)

	// LastCall stops accepting, ends what is still open as politely as its
	// protocol allows and returns the busy ones of it. The endings are spread
	// over window.
	LastCall(ctx context.Context, window time.Duration) ([]Conversation, error)

	// Close ends the data plane in an orderly way: it stops accepting, ends the
	// idle, and returns when what was written has reached its peers and the
	// last access-log line is out, or when ctx ends.
	Close(ctx context.Context) error

	// Kill ends the data plane at once, as SIGKILL would. It may be called while a call
	// that has not heeded its context is still under way.
	Kill()

	// Exited is closed when the data plane has ended, by itself or not.
	Exited() <-chan struct{}
}

// Activity is what a data plane knows of its inbound conversations. What never
// counts (probes, scrapes, admin) has been left out by the data plane.
type Activity struct {
	// Known is false when the data plane could not tell. The counts are then
	// meaningless.
	Known bool

	// Connections is the number of open inbound connections, idle or busy.
	Connections int

	// Busy is the number of connections with a request in flight, or with a
	// protocol whose idleness cannot be told (opaque TCP, an upgrade).
	Busy int

	// Arrivals counts new connections and new requests since the start of the
	// data plane; it only grows. A change means that somebody still comes.
	Arrivals uint64

	// ArrivalsAsOf is the moment up to which Arrivals is complete. Zero is the moment
	// of the look, which is the rule; a data plane that could miss a short connection
	// or a request since then says so by an earlier one. The drain does not conclude
	// from Arrivals that clients stay away until it is complete.
	ArrivalsAsOf time.Time

	// Raced counts the connections, since the start of the data plane, whose
	// client asked in the moment in which they were closed as idle: it has to ask
	// again. A data plane that cannot tell leaves it at 0.
	Raced uint64
}

// Conversation is one inbound conversation, as the report names it.
type Conversation struct {
	Peer     string `json:"peer"`              // address of the client, host:port
	Protocol string `json:"protocol"`          // "http/1.1", "tcp", …
	Request  string `json:"request,omitempty"` // request line without the version: "GET /delay/10"
	Age      Millis `json:"age_ms"`            // since the request (or the connection) began
	Ending   string `json:"ending,omitempty"`  // how the last call ended it: "503", "truncated", "fin", …
}
