// Package counters counts the traffic of a listener. Counting takes no lock and allocates nothing.
package counters

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// Listener has the counters of a listener, which only grow, and the gauges Open, Busy, AppOpen and OverLimit.
type Listener struct {
	Open      atomic.Int64
	Busy      atomic.Int64
	AppOpen   atomic.Int64
	OverLimit atomic.Int64 // open connections beyond the limit

	values[atomic.Uint64]
	Durations durations
}

// Stats are values of the counters of one or more listeners.
type Stats = values[uint64]

// values are the counters of a listener; atomic while it counts, numbers when they are read.
type values[T any] struct {
	Connections   T                    // accepted
	Connected     T                    // connections made to the app
	Requests      T                    // forwarded, or answered in place of an app that could not be reached
	Responses     [classes]T           // by hundreds of the status, local replies included; [0] is unused
	ConnectFailed T                    // connections to the app that failed
	Truncated     T                    // responses that the app did not finish
	Refused       T                    // malformed, too large or too slow requests
	RefusedWith   [len(RefusedCodes)]T // those with a response, by RefusedCodes
	Raced         T                    // idle connections that the pipe closed when a request was on its way
	ClientResets  T                    // connections that the client reset
	AcceptErrors  T                    // failed accepts: no descriptors, no memory
	H2            http2Values[T]

	Overflowed       T // connections beyond the listener's limit
	IdleEnded        T // connections that were idle for too long
	ResponseTimeouts T // requests that took too long

	Evicted [EvictedKinds]T // connections that were ended for the memory's sake

	Opaque [OpaqueKinds]T // connections that are passed through as bytes

	Invalid [InvalidKinds]T // responses that are not HTTP/1
}

// Responded counts a final response.
func (c *Listener) Responded(status int) {
	if i := status / 100; i > 0 && i < len(c.Responses) {
		c.Responses[i].Add(1)
	}
}

// RefusedCodes are the statuses with which HTTP/1 requests are refused.
var RefusedCodes = [...]int{400, 408, 414, 431, 501, 505}

// CountRefused counts a client that was refused. status is 0 if it got no response.
func (c *Listener) CountRefused(status int) {
	c.Refused.Add(1)
	for i, code := range RefusedCodes {
		if code == status {
			c.RefusedWith[i].Add(1)
		}
	}
}

// AddTo adds the present values to sum.
func (c *Listener) AddTo(sum *Stats) {
	sum.Connections += c.Connections.Load()
	sum.Connected += c.Connected.Load()
	sum.Requests += c.Requests.Load()
	addTo(sum.Responses[:], c.Responses[:])
	sum.ConnectFailed += c.ConnectFailed.Load()
	sum.Truncated += c.Truncated.Load()
	sum.Refused += c.Refused.Load()
	addTo(sum.RefusedWith[:], c.RefusedWith[:])
	sum.Raced += c.Raced.Load()
	sum.ClientResets += c.ClientResets.Load()
	sum.AcceptErrors += c.AcceptErrors.Load()
	sum.H2.RxResets += c.H2.RxResets.Load()
	sum.H2.TxResets += c.H2.TxResets.Load()
	sum.H2.GoAways += c.H2.GoAways.Load()
	sum.H2.BadPeers += c.H2.BadPeers.Load()
	addTo(sum.H2.Floods[:], c.H2.Floods[:])
	sum.Overflowed += c.Overflowed.Load()
	sum.IdleEnded += c.IdleEnded.Load()
	sum.ResponseTimeouts += c.ResponseTimeouts.Load()
	addTo(sum.Opaque[:], c.Opaque[:])
	addTo(sum.Invalid[:], c.Invalid[:])
	addTo(sum.Evicted[:], c.Evicted[:])
}

func addTo(sum []uint64, counters []atomic.Uint64) {
	for i := range counters {
		sum[i] += counters[i].Load()
	}
}

// Evicted is the state of a connection that was ended because the memory for such connections was used up.
type Evicted int

// Kinds of evicted connections.
const (
	EvictedHead        Evicted = iota // its request's head was not complete
	EvictedHeaderBlock                // the same with HTTP/2
	EvictedHello                      // its ClientHello, which passes through, was not complete
	EvictedHandshake                  // its TLS handshake was not complete
	EvictedIdle                       // it was idle, and there was no room for another connection
	EvictedKinds                      // how many there are
)

var evictedNames = [EvictedKinds]string{"head", "header_block", "client_hello", "handshake", "idle"}

func (k Evicted) String() string { return evictedNames[k] }

// Opaque is why a connection passes through as bytes. It is busy while it is open, and has none of HTTP's limits.
type Opaque int

// Kinds of opaque connections.
const (
	OpaqueTCP         Opaque = iota // by configuration
	OpaqueTLS                       // the app terminates TLS
	OpaqueConnect                   // the app has accepted a CONNECT
	OpaqueUpgrade                   // the app has accepted an upgrade to a protocol that is not followed
	OpaqueServerFirst               // the app sent before any request
	OpaqueUnknown                   // the client's first bytes are neither HTTP nor TLS
	OpaqueKinds                     // how many there are
)

var opaqueNames = [OpaqueKinds]string{"tcp", "tls", "connect", "upgrade", "server_first", "unknown"}

func (k Opaque) String() string { return opaqueNames[k] }

// HTTP2Stats are values of the counters of HTTP/2.
type HTTP2Stats = http2Values[uint64]

type http2Values[T any] struct {
	RxResets T               // RST_STREAM of clients
	TxResets T               // RST_STREAM to clients, of the app and of the pipe
	GoAways  T               // GOAWAY of the pipe
	BadPeers T               // connections ended for a protocol violation
	Floods   [http2.Floods]T // connections ended for a flood
}

// HTTP2ByName returns the counters by Envoy's names below http2., where Envoy has the counter.
func HTTP2ByName(s HTTP2Stats) map[string]uint64 {
	named := map[string]uint64{
		"rx_reset": s.RxResets, "tx_reset": s.TxResets, "goaway_sent": s.GoAways,
		"rx_messaging_error": s.BadPeers,
	}
	for flood, n := range s.Floods {
		named[http2.Flood(flood).Counter()] += n
	}
	return named
}

// Protocol is that of a request.
type Protocol uint8

// Protocols of requests.
const (
	HTTP1 Protocol = iota
	HTTP2
	GRPC
	protocols
)

var protocolNames = [protocols]string{"http/1.1", "http/2", "grpc"}

func (p Protocol) String() string { return protocolNames[p] }

// Bounds are the upper bounds of the buckets of durations, seconds: 0.5 ms, and from there on twice the one before, up
// to 131 s. Longer durations are in one more bucket.
var Bounds = func() (bounds [19]float64) {
	for i := range bounds {
		bounds[i] = 0.0005 * float64(uint64(1)<<i)
	}
	return bounds
}()

// classes is the number of status classes: hundreds of a status. Class 0 is for requests without a response.
const classes = 6

// durations are histograms of how long requests take, from the end of the head to the end of the response.
type durations [protocols][classes]struct {
	buckets [len(Bounds) + 1]atomic.Uint64
	sum     atomic.Int64 // ns
}

// Observe counts a request.
func (d *durations) Observe(p Protocol, status int, took time.Duration) {
	class := status / 100
	if class < 0 || class >= classes {
		class = 0
	}
	of := &d[p][class]
	of.buckets[bucketOf(took)].Add(1)
	of.sum.Add(int64(took))
}

// bucketOf returns the index of the first bucket whose bound is not below took.
func bucketOf(took time.Duration) int {
	return min(bits.Len64(uint64(max(took-1, 0)/(500*time.Microsecond))), len(Bounds))
}

// Durations is the histogram of the requests of one protocol and status class.
type Durations struct {
	Protocol string // http/1.1, http/2 or grpc
	Class    int    // hundreds of the status; 0: no response
	Count    uint64
	Sum      time.Duration
	Buckets  [len(Bounds)]uint64 // cumulative, as in Prometheus
}

// List returns the histograms that are not empty.
func (d *durations) List() (out []Durations) {
	for protocol := range d {
		for class := range classes {
			from := &d[protocol][class]
			h := Durations{Protocol: Protocol(protocol).String(), Class: class}
			for b := range from.buckets {
				h.Count += from.buckets[b].Load()
				if b < len(h.Buckets) {
					h.Buckets[b] = h.Count
				}
			}
			if h.Count > 0 {
				h.Sum = time.Duration(from.sum.Load())
				out = append(out, h)
			}
		}
	}
	return out
}

// Invalid is why a response of the app is not passed on, or only in part.
type Invalid int

// Reasons.
const (
	InvalidSyntax     Invalid = iota // of the status line or a field line, or an unrequested 101
	InvalidFraming                   // its readers may differ about its end
	InvalidChunks                    // of its body
	InvalidTooLarge                  // its head
	InvalidIncomplete                // the app has closed within its head
	InvalidKinds                     // how many there are
)

var invalidNames = [InvalidKinds]string{"syntax", "framing", "chunks", "too_large", "incomplete"}

func (k Invalid) String() string { return invalidNames[k] }
