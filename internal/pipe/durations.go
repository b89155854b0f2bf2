package pipe

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
)

// protocol is a label of what is counted by request.
type protocol uint8

const (
	protocolHTTP1 protocol = iota
	protocolHTTP2
	protocolGRPC
	protocols
)

var requestProtocols = [protocols]string{"http/1.1", "http/2", "grpc"}

// DurationBuckets are the upper bounds of the buckets of durations, seconds: from
// 0.5 ms on each twice the one before, to 131 s. What is beyond the last one is in
// one more.
var DurationBuckets = func() (bounds [19]float64) {
	for i := range bounds {
		bounds[i] = 0.0005 * float64(uint64(1)<<i)
	}
	return bounds
}()

// durations are of a listener's requests, from the end of their head to the end of
// their response. Two additions are what a request costs.
type durations [protocols][classes]struct {
	buckets [len(DurationBuckets) + 1]atomic.Uint64
	sum     atomic.Int64 // ns
}

// classes are the hundreds of a status; 0 is for requests without a response.
const classes = 6

func (d *durations) observe(p protocol, status int, took time.Duration) {
	class := status / 100
	if class < 0 || class >= classes {
		class = 0
	}
	of := &d[p][class]
	of.buckets[bucketOf(took)].Add(1)
	of.sum.Add(int64(took))
}

// bucketOf is the index of the first bucket whose bound is not below took.
func bucketOf(took time.Duration) int {
	return min(bits.Len64(uint64(max(took-1, 0)/(500*time.Microsecond))), len(DurationBuckets))
}

// Durations are those of a listener's requests of one protocol and class.
type Durations struct {
	Protocol string // http/1.1, http/2 or grpc
	Class    int    // hundreds of the status; 0: no response
	Count    uint64
	Sum      time.Duration
	Buckets  [len(DurationBuckets)]uint64 // cumulative, as in Prometheus
}

// Durations lists what listener i has seen any of.
func (p *Pipe) Durations(i int) []Durations {
	var out []Durations
	for of := range p.listeners[i].stats.durations {
		for class := range classes {
			from := &p.listeners[i].stats.durations[of][class]
			d := Durations{Protocol: requestProtocols[of], Class: class}
			for b := range from.buckets {
				d.Count += from.buckets[b].Load()
				if b < len(d.Buckets) {
					d.Buckets[b] = d.Count
				}
			}
			if d.Count > 0 {
				d.Sum = time.Duration(from.sum.Load())
				out = append(out, d)
			}
		}
	}
	return out
}

// finishStream is finish for a request of HTTP/2.
func (c *conn) finishStream(s *stream, outcome accesslog.Outcome) {
	c.in.stats.durations.observe(s.protocol(), s.status, c.h2.clock().Sub(s.began))
	c.p.writeEntry(s.entry, s.status, outcome)
}

func (s *stream) protocol() protocol {
	if s.grpc {
		return protocolGRPC
	}
	return protocolHTTP2
}
