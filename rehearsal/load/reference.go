package load

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

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
	case ref.sameLength && ref.sameTail && o.Framing == traffic.ByClose:
		return o.Bytes < ref.Bytes || !bytes.HasSuffix(o.Tail, ref.tail) // an error of the server, for example
	case ref.sameLength:
		return o.Bytes < ref.Bytes
	case ref.sameTail:
		return !bytes.HasSuffix(o.Tail, ref.tail)
	}
	return false
}
