package drain

import (
	"context"
	"errors"
	"time"
)

// ErrLastCall is the cause (context.Cause) with which data planes cancel requests at the last call.
var ErrLastCall = errors.New(MessageLastCall + ": last call")

// What clients read at the last call.
const (
	// MessageLastCall is a status message of gRPC or the reason of a WebSocket's close frame.
	MessageLastCall = "the server is shutting down"

	// BodyLastCall is the body of a 503.
	BodyLastCall = "the server is shutting down and the request was not finished before its deadline"
)

// DataPlane carries the inbound traffic that a termination drains: lastcall's own proxy, an Envoy, the sockets of an
// app, an http.Server, a grpc.Server, a worker's queue. Run starts its drain, watches its activity and ends it.
//
// The contract, which package planetest checks on real sockets:
//
//   - Run makes one call at a time. Three methods may be called during another call: Changes,
//     Exited and Kill.
//   - Every call has a deadline. A method returns soon after its context ends, and then may return
//     an error. One that does not return is abandoned, and no other is called until it returns.
//   - An error does not stop the termination: Run reports it and continues. A failed Activity counts
//     as busy, a failed LastCall as cut, and a failed Close leads to Kill.
//   - Each step may be skipped. Kill and Close come from any state, LastCall without CloseIdle or
//     StopAccepting before it.
//   - Drain, CloseIdle, StopAccepting, LastCall and Close may be repeated. Resume may come after any
//     of Drain, CloseIdle, StopAccepting and LastCall, and a second drain after Resume.
//   - A data plane may end by itself at any time: it closes Exited, and the termination ends.
type DataPlane interface {
	// Drain asks the client of every inbound connection to go elsewhere (Connection: close, GOAWAY),
	// at the next moment that its protocol allows. New connections are still accepted, requests are
	// still served, and outbound connections are not touched.
	Drain(ctx context.Context) error

	// Resume cancels the drain: clients are no longer sent away, idle connections are kept again, and
	// the listeners that StopAccepting or LastCall closed are reopened.
	Resume(ctx context.Context) error

	// Activity returns the inbound activity of this moment. When it returns an error, or an Activity
	// without Known, every open connection counts as busy.
	Activity(ctx context.Context) (Activity, error)

	// Changes delivers a value after every change of activity from Drain on. Values may be merged, but the last change is
	// never lost. A data plane that cannot push returns nil, and Activity is called every Config.PollInterval.
	Changes() <-chan struct{}

	// CloseIdle closes, in an orderly way, the inbound connections that have been idle for at least idleFor and, from now
	// on, every one as soon as it has been idle for that long. It does not wait for connections to become idle.
	CloseIdle(ctx context.Context, idleFor time.Duration) error

	// StopAccepting closes the inbound listeners; open connections continue. A connection in
	// the kernel's accept queue is served, not reset. Later clients are refused, which is safe to retry.
	StopAccepting(ctx context.Context) error

	// Open lists the busy inbound conversations, the oldest first, at most limit.
	Open(ctx context.Context, limit int) ([]Conversation, error)

	// LastCall stops accepting, ends every open conversation in the way that its protocol offers, and
	// returns the busy ones, each with its Ending. The endings may be spread over window.
	LastCall(ctx context.Context, window time.Duration) ([]Conversation, error)

	// Close ends the data plane in an orderly way: it stops accepting, closes idle connections, waits
	// for busy ones, and returns when everything written has reached the clients, and access logs
	// are complete, or when ctx ends. Exited is closed when it has succeeded.
	Close(ctx context.Context) error

	// Kill ends the data plane at once, as SIGKILL would, and closes Exited. It may be called during
	// a call that has not returned.
	Kill()

	// Exited is closed when the data plane has ended, for whatever reason.
	Exited() <-chan struct{}
}

// Assumer is a data plane that cannot prove that its conversations have ended, such as one that only watches sockets.
type Assumer interface {
	// Assumed lists the data plane's assumptions, once it has been closed.
	Assumed() []string

	// Warnings lists reasons to doubt them.
	Warnings() []string
}

// Cutter is a data plane whose program may cut conversations itself, such as by http.Server.Close.
type Cutter interface {
	// Cut lists these since the start of the data plane, each with its Ending. Their clients lost them.
	Cut() []Conversation
}

// Activity is the inbound activity of a data plane. The data plane leaves out what must not delay a
// termination: probes, scrapes, admin requests.
type Activity struct {
	// Known is false when the data plane does not know its activity. The counts are then
	// meaningless, and the data plane counts as busy.
	Known bool

	// Connections is the number of open inbound connections, idle or busy.
	Connections int

	// Busy is the number of connections with a request in flight, or with a protocol that does not
	// show whether it is idle (opaque TCP, an upgraded connection).
	Busy int

	// Opaque is the number of Busy connections that show neither idleness nor an end of their own, so that only the app
	// can end them without a loss: opaque TCP, TLS that the app terminates. A data plane that has none leaves it at 0.
	Opaque int

	// OpaqueEnds counts, since the start of the data plane, those that the app has ended.
	OpaqueEnds OpaqueEnds

	// Arrivals counts new connections and new requests since the start of the data plane. It never
	// decreases. A change means that clients still arrive.
	Arrivals uint64

	// ArrivalsAsOf is the moment up to which Arrivals is complete. Zero, the usual case, means the
	// moment of the call. A data plane that may have missed a short connection or request sets an
	// earlier moment; the drain does not end for lack of arrivals before the count is complete.
	ArrivalsAsOf time.Time

	// Raced counts the connections, since the start of the data plane, that were closed as idle while a request of their
	// client was on its way: the client has to repeat it. A data plane that cannot count them leaves it at 0.
	Raced uint64

	// Failed counts the requests, since the start of the data plane, that got no response, or a part of one, because the
	// app could not be reached or ended its connection. A data plane that does not see requests leaves it at 0.
	Failed uint64
}

// Endings of conversations at the last call, in reports and in lastcall_requests_cut_total. docs/endings.md has the
// rule of each, and what the client sees of it. A close frame of a WebSocket is "close" with its code.
const (
	EndingReply      = "503"             // the reply of HTTP
	EndingGRPC       = "grpc-status 14"  // the status UNAVAILABLE in trailers
	EndingConnect    = "unavailable"     // the same in Connect's last message
	EndingErrorEvent = "error event"     // of an LLM's stream
	EndingGoingAway  = "close 1001"      // WebSocket's
	EndingFIN        = "fin"             // without HTTP
	EndingTruncated  = "truncated"       // the client can see that something lacks
	EndingReset      = "reset"           // of a stream of HTTP/2 within its response
	EndingAnswered   = "answered"        // in full; the client was still sending
	EndingCompleted  = "ended"           // at the end of its message
	LeftToApp        = "left to the app" // the app, not the data plane, has to end it: behind a hook
)

// Conversation is one inbound conversation (a request, a stream, an opaque connection) in a report.
type Conversation struct {
	Peer     string `json:"peer"`               // address of the client, host:port; empty for a job of lastcall run
	Protocol string `json:"protocol"`           // "http/1.1", "tcp", "job", …
	Request  string `json:"request,omitempty"`  // request line without the version: "GET /delay/10"
	Age      Millis `json:"age_ms"`             // since the request (or the connection) began
	Quiet    Millis `json:"quiet_ms,omitempty"` // since the app's last bytes, if no request may be behind them
	Ending   string `json:"ending,omitempty"`   // how the last call ended it: EndingReply, EndingTruncated, …
}

type begunKey struct{}

// Begun returns a channel that is closed when the drain begins of the data plane that ctx belongs to: the context of an
// HTTP request or of a gRPC call. lastcall.Draining is this function. It returns nil, which is never ready, for
// any other context. After a drain that was cancelled it returns another channel.
func Begun(ctx context.Context) <-chan struct{} {
	if channel, ok := ctx.Value(begunKey{}).(func() <-chan struct{}); ok {
		return channel()
	}
	return nil
}

// WithBegun returns a context for which Begun returns the result of channel: it is for data planes.
func WithBegun(ctx context.Context, channel func() <-chan struct{}) context.Context {
	return context.WithValue(ctx, begunKey{}, channel)
}
