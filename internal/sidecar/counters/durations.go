package counters

import (
	"math/bits"
	"sync/atomic"
	"time"
)

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
