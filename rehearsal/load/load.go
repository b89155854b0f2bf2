// Package load sends one's own requests to a service at a constant rate, and judges each response by that of the
// undisturbed service.
//
// The load is open: each request is sent at its time, whether earlier ones were answered or not. A request counts as
// lost if its client did not get the response that it got from the undisturbed service: the connection was refused,
// reset or closed, the status or the body differs.
package load

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

const (
	defaultRate     = 20.0 // requests a second, at most
	defaultInFlight = 2.0

	// maxInFlight is how many requests of the load may be in flight; later ones are not sent.
	maxInFlight = 4000

	// maxKept is how many answered requests, and how many lost ones, are kept. Further ones are only counted.
	maxKept = 50_000
)

// Load is requests that clients send to a service. Measure comes first.
type Load struct {
	Requests    []Request         // at least one
	Clients     []*traffic.Client // they send the load in turn
	Rate        float64           // requests a second; 0: Measure chooses one, by Options
	References  []Reference       // of Requests; Measure sets them
	Descriptors string            // Options.Descriptors

	mu             sync.Mutex // guards the fields below
	answered, lost int
	sent           []Sent
}

// Sent is one request, and how it ended.
type Sent struct {
	Request, Client int             // indexes
	Reason          traffic.Failure // why it was lost; empty: it was not
	traffic.Outcome
}

// Send sends requests at the load's rate until loading ends, by the clients in turn and each kind by its weight. The
// end of ctx ends requests in flight, which flying counts.
func (l *Load) Send(loading, ctx context.Context, flying *sync.WaitGroup) {
	next := l.turns()
	if next == nil {
		return
	}
	var inFlight atomic.Int64
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; ; i++ {
		timer.Reset(time.Until(began.Add(time.Duration(float64(i) / l.Rate * float64(time.Second)))))
		select {
		case <-timer.C:
		case <-loading.Done():
			return
		}
		if inFlight.Load() >= maxInFlight {
			continue
		}
		request := next()
		inFlight.Add(1)
		flying.Go(func() {
			l.One(ctx, request, i%len(l.Clients))
			inFlight.Add(-1)
		})
	}
}

// One sends one request and records its outcome, unless the end of ctx ended it.
func (l *Load) One(ctx context.Context, request, client int) {
	o := l.Clients[client].Do(ctx, l.Requests[request].Request)
	if o.Failure == traffic.Stopped {
		return
	}
	s := Sent{request, client, reason(l.Requests[request], l.References[request], o), o}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.answered
	if s.Reason != "" {
		n = &l.lost
	}
	if *n++; *n <= maxKept {
		l.sent = append(l.sent, s)
	}
}

// reason judges an outcome; empty: the client got the right response.
func reason(r Request, ref Reference, o traffic.Outcome) traffic.Failure {
	switch {
	case o.Failure == "" && !r.IsEndless() && ref.isShort(o):
		return traffic.Short
	case o.Failure == traffic.NoPods:
		return traffic.Refused
	}
	return o.Failure
}

// Counts returns how many requests were answered as they should be, and how many were not.
func (l *Load) Counts() (answered, lost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered, l.lost
}

// Sent returns the requests that have ended, by the time at which they were sent.
func (l *Load) Sent() []Sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.sent)
	slices.SortFunc(all, func(a, b Sent) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Conn, b.Conn)) })
	return all
}

// Close closes the clients' connections.
func (l *Load) Close() {
	for _, c := range l.Clients {
		c.Close()
	}
}

// turns chooses the next request, by its index: the one that is furthest behind its weight, so that the load is evenly
// mixed, and the same in each run. Requests without an end are no part of it; nil if there are no others.
func (l *Load) turns() func() int {
	if !slices.ContainsFunc(l.Requests, func(r Request) bool { return !r.IsEndless() }) {
		return nil
	}
	sent := make([]int, len(l.Requests))
	return func() int {
		best := -1
		for i, r := range l.Requests {
			if !r.IsEndless() && (best < 0 || (2*sent[i]+1)*l.Requests[best].Weight < (2*sent[best]+1)*r.Weight) {
				best = i
			}
		}
		sent[best]++
		return best
	}
}

const (
	warmUp = time.Second            // load before the disruption
	lead   = 300 * time.Millisecond // before the disruption, each client sends each request once
)

// Around sends the load before, during and for a while after a disruption, which is complete when disrupt returns.
// Measure comes first. At the disruption each client has one more request of each kind in flight, and holds its streams
// without an end. When Around returns, each request has ended; the end of ctx ends all of them.
func (l *Load) Around(ctx context.Context, after time.Duration, disrupt func() error) error {
	var flying, loader sync.WaitGroup
	// The streams that the disruption has not ended are ended when all other requests are complete.
	streams, endStreams := context.WithCancel(ctx)
	loading, enough := context.WithCancel(ctx)
	defer func() {
		enough()
		loader.Wait()
		endStreams()
		flying.Wait()
	}()
	loader.Go(func() { l.Send(loading, ctx, &flying) })
	if err := poll.Pause(ctx, warmUp); err != nil {
		return err
	}
	for client := range l.Clients {
		for i, r := range l.Requests {
			within := ctx
			if r.IsEndless() {
				within = streams
			}
			flying.Go(func() { l.One(within, i, client) })
		}
	}
	if err := poll.Pause(ctx, lead); err != nil {
		return err
	}
	if err := disrupt(); err != nil {
		return err
	}
	return poll.Pause(ctx, after)
}

// Reference is the undisturbed service's response to a request; one that differs is lost.
type Reference struct {
	Took  time.Duration // 0: the response has no end
	Bytes int64

	tail       []byte
	sameLength bool // two responses had the same number of bytes
	sameTail   bool // and the same end
}

// shortTail is how many last bytes are compared if the lengths of two responses differ.
const shortTail = 8

// firstEvents is how long an endless response is observed.
const firstEvents = time.Second

// Measure sends each request twice by a client of its own, and chooses the load's rate if it has none.
func (l *Load) Measure(ctx context.Context, client *traffic.Client) error {
	if err := l.encode(ctx, client); err != nil {
		return err
	}
	l.References = make([]Reference, len(l.Requests))
	errs := make([]error, len(l.Requests))
	var measuring sync.WaitGroup
	for i, r := range l.Requests {
		measuring.Go(func() { l.References[i], errs[i] = refer(ctx, client, r) })
	}
	measuring.Wait()
	var sum time.Duration
	weights := 0
	for i, r := range l.Requests {
		if errs[i] != nil {
			return errs[i]
		}
		if !r.IsEndless() {
			sum += l.References[i].Took * time.Duration(r.Weight)
			weights += r.Weight
		}
	}
	if l.Rate == 0 && weights > 0 {
		mean := (sum / time.Duration(weights)).Seconds()
		l.Rate = min(defaultRate, defaultInFlight/max(mean, 0.001))
	}
	return ctx.Err()
}

func refer(ctx context.Context, client *traffic.Client, r Request) (ref Reference, err error) {
	within := ctx
	if r.IsEndless() {
		var stop context.CancelFunc
		within, stop = context.WithTimeout(ctx, firstEvents)
		defer stop()
	}
	var both [2]traffic.Outcome
	for i := range both {
		o := client.Do(within, r.Request)
		both[i] = o
		switch {
		case ctx.Err() != nil:
			return ref, context.Cause(ctx)
		case r.IsEndless() && o.Status != 0 && o.Status < 400 && o.Failure == traffic.Stopped:
			return Reference{}, nil
		case r.IsEndless() && o.Failure == "":
			return ref, fmt.Errorf("%s ended within %v before any disruption: "+
				"use its method in place of %s if the response has an end", r, firstEvents, r.Protocol)
		case o.Failure != "":
			return ref, fmt.Errorf("%s failed before any disruption: %s %s; use a request that the app answers",
				r, o.Failure, o.Detail)
		}
		ref.Took = max(ref.Took, o.Last.Sub(o.Began))
	}
	a, b := both[0], both[1]
	ref.Bytes, ref.tail = a.Bytes, a.Tail[max(0, len(a.Tail)-shortTail):]
	ref.sameLength = a.Bytes == b.Bytes
	ref.sameTail = len(ref.tail) > 0 && bytes.HasSuffix(b.Tail, ref.tail)
	return ref, nil
}

// isShort reports whether a response that is complete by its framing lacks its end. Without a framing, its end decides
// even if it is long enough.
func (ref Reference) isShort(o traffic.Outcome) bool {
	switch {
	case ref.sameLength && ref.sameTail && o.IsByClose:
		return o.Bytes < ref.Bytes || !bytes.HasSuffix(o.Tail, ref.tail) // an error of the server, for example
	case ref.sameLength:
		return o.Bytes < ref.Bytes
	case ref.sameTail:
		return !bytes.HasSuffix(o.Tail, ref.tail)
	}
	return false
}
