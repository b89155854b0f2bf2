package draintest

import "time"

// Forever is a moment that no test sees.
const Forever = 1<<63 - 1 - time.Duration(1<<61)

// Script is what happens to a Plane.
type Script struct {
	Clients []Client
	Faults  []Fault

	// Dies is when the plane ends by itself; zero: it does not.
	Dies time.Duration

	// Polled makes Changes return nil.
	Polled bool
}

// Client is one client with one connection. When that is closed under it and it
// has more to ask, it connects anew.
type Client struct {
	// Peer is its address; "" gives each client one of its own, in the order of
	// the script: 192.0.2.1:40000, 192.0.2.2:40000, …
	Peer string

	// Protocol is "http/1.1" when empty. A connection of "tcp" is busy for as
	// long as it is open: from At until Leaves.
	Protocol string

	// At is when it connects. A negative one was there before the test began.
	At time.Duration

	// Requests come on the connection, in the order of time, none before the
	// answer to the last.
	Requests []Request

	// Leaves is when it closes its connection by itself. Zero is at the end of
	// its last answer; Forever leaves the closing to others.
	Leaves time.Duration
}

// Request is one request and its answer.
type Request struct {
	Line  string        // "GET /delay/10"
	At    time.Duration // when it is sent
	Takes time.Duration // until the last byte of the answer

	// Streams says that the head of the answer goes out at once. One that went
	// out before Drain could not say goodbye: its connection is kept.
	Streams bool
}

// Get is a client that connects, asks for path, gets its answer after takes and
// hangs up.
func Get(path string, at, takes time.Duration) Client {
	return Client{At: at, Requests: []Request{{Line: "GET " + path, At: at, Takes: takes}}}
}

// KeepAlive is Get by a client that then keeps its connection for good.
func KeepAlive(path string, at, takes time.Duration) Client {
	c := Get(path, at, takes)
	c.Leaves = Forever
	return c
}

// Stream is KeepAlive with an answer whose head goes out at once.
func Stream(path string, at, takes time.Duration) Client {
	c := KeepAlive(path, at, takes)
	c.Requests[0].Streams = true
	return c
}

// Idle is a client that connects and asks for nothing.
func Idle(at time.Duration) Client { return Client{At: at, Leaves: Forever} }

// TCP is a client of an opaque protocol that stays for takes.
func TCP(at, takes time.Duration) Client {
	return Client{Protocol: "tcp", At: at, Leaves: at + takes}
}

// Every is one client after another: the first at from, then each interval
// until to, each asking for path, which takes takes.
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

// Fault is what goes wrong with the calls of one method that begin between From
// and To (zero: for good). The first fault of the script that fits is taken.
type Fault struct {
	Method   Method
	From, To time.Duration

	Hang    bool          // no answer and no effect until the context ends; of Kill: until Stop
	Deaf    bool          // of Hang and Delay: the context is not heeded
	Delay   time.Duration // answer and effect come later; the context may end before
	Hastens bool          // of Delay: when the context ends, both come then, not an error
	Err     error         // no effect, but this error
	Unknown bool          // of Activity: an answer that is not Known
	Behind  bool          // of Activity: arrivals since From may be missing
}

// begins reports whether a call of m that begins at at is struck.
func (f Fault) begins(m Method, at time.Duration) bool {
	return f.Method == m && at >= f.From && (f.To == 0 || at < f.To)
}
