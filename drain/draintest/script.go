package draintest

import "time"

// Forever is a moment that no test sees.
const Forever = 1<<63 - 1 - time.Duration(1<<61)

// Script lists the events of a Plane.
type Script struct {
	Clients []Client
	Faults  []Fault

	// Dies is when the plane ends by itself; zero means never.
	Dies time.Duration

	// Polled makes Changes return nil.
	Polled bool
}

// Client is one client with one connection. If the connection is closed and the client has more requests, it connects
// again.
type Client struct {
	// Peer is its address; "" gives each client one of its own, in the order of
	// the script: 192.0.2.1:40000, 192.0.2.2:40000, …
	Peer string

	// Protocol is "http/1.1" when empty. A connection of "tcp" is busy for as long as it is open: from At until Leaves.
	Protocol string

	// At is when it connects; negative: before the test began.
	At time.Duration

	// Requests are sent on the connection, in the order of time, each after the response to the one before.
	Requests []Request

	// Leaves is when it closes its connection by itself. Zero is at the end of its last response; with Forever it never
	// does.
	Leaves time.Duration

	// Finishes is how long after StopApp the app ends a connection of "tcp"; negative: at once, without an answer.
	Finishes time.Duration
}

// Request is one request and its response.
type Request struct {
	Line  string        // "GET /delay/10"
	At    time.Duration // when it is sent
	Takes time.Duration // until the last byte of the response

	// Streams sends the head of the response at once. A head from before Drain cannot have Connection: close, so that
	// the connection is kept.
	Streams bool
}

// Get is a client that connects, requests path, gets its response after takes and closes its connection.
func Get(path string, at, takes time.Duration) Client {
	return Client{At: at, Requests: []Request{{Line: "GET " + path, At: at, Takes: takes}}}
}

// KeepAlive is Get by a client that keeps its connection.
func KeepAlive(path string, at, takes time.Duration) Client {
	c := Get(path, at, takes)
	c.Leaves = Forever
	return c
}

// Stream is KeepAlive with a response whose head is sent at once.
func Stream(path string, at, takes time.Duration) Client {
	c := KeepAlive(path, at, takes)
	c.Requests[0].Streams = true
	return c
}

// Idle is a client that connects and sends no request.
func Idle(at time.Duration) Client { return Client{At: at, Leaves: Forever} }

// TCP is a client of an opaque protocol that stays for takes.
func TCP(at, takes time.Duration) Client {
	return Client{Protocol: "tcp", At: at, Leaves: at + takes}
}

// Every is one client after another: the first at from, then one per interval until to. Each requests path, which takes
// takes.
func Every(interval time.Duration, path string, from, to, takes time.Duration) []Client {
	var out []Client
	for at := from; at <= to; at += interval {
		out = append(out, Get(path, at, takes))
	}
	return out
}

// Method is a method of drain.DataPlane.
type Method string

// The methods that a Plane records and that a Fault can be about. Kill returns no
// error, and may come during another call.
const (
	Drain         Method = "Drain"
	Resume        Method = "Resume"
	Activity      Method = "Activity"
	CloseIdle     Method = "CloseIdle"
	StopAccepting Method = "StopAccepting"
	Open          Method = "Open"
	LastCall      Method = "LastCall"
	Close         Method = "Close"
	Kill          Method = "Kill"
)

// Fault is a fault of the calls of one method that begin between From and To (zero: without end). The first fault of
// the script that matches applies.
type Fault struct {
	Method   Method
	From, To time.Duration

	Hang           bool          // no return and no effect until the context ends; for Kill, until Stop
	IgnoresContext bool          // with Hang and Delay: the context is ignored
	Delay          time.Duration // return and effect are late; the context may end before
	Hastens        bool          // with Delay: at the end of the context both happen, without an error
	Err            error         // no effect, and this error
	Unknown        bool          // for Activity: an unknown one
	Behind         bool          // for Activity: arrivals since From may be missing
}
