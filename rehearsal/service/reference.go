package service

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// reference is the undisturbed app's response to a request: what a lost one is detected by.
type reference struct {
	took   time.Duration
	status int
	bytes  int64
	tail   []byte

	sameLength bool // two responses had the same number of bytes
	sameTail   bool // and the same end
}

// shortTail is how many last bytes are compared if the lengths of two responses differ.
const shortTail = 8

// firstEvents is how long an endless response is observed.
const firstEvents = time.Second

// measure sends each request twice to the successor, which has no load, and derives the load.
func (t *trial) measure(ctx context.Context) error {
	t.references = make([]reference, len(t.options.Requests))
	errs := make([]error, len(t.options.Requests))
	client := &traffic.Client{ClusterIP: true, Timeout: t.options.Timeout, Targets: func() []string { return []string{t.next.Address} }}
	defer client.Close()
	var measuring sync.WaitGroup
	for i, r := range t.options.Requests {
		measuring.Go(func() { t.references[i], errs[i] = refer(ctx, client, r) })
	}
	measuring.Wait()
	var sum time.Duration
	weights := 0
	for i, r := range t.options.Requests {
		if errs[i] != nil {
			return errs[i]
		}
		if !r.IsEndless() {
			sum += t.references[i].took * time.Duration(r.Weight)
			weights += r.Weight
		}
	}
	if t.load = t.options.Load; t.load == 0 && weights > 0 {
		t.load = loadFor(sum / time.Duration(weights))
	}
	return ctx.Err()
}

func refer(ctx context.Context, client *traffic.Client, r Request) (ref reference, err error) {
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
			return reference{status: o.Status}, nil
		case r.IsEndless() && o.Failure == "":
			return ref, fmt.Errorf("%s ended within %v before any disruption: use its method in place of %s if the response has an end", r, firstEvents, r.Protocol)
		case o.Failure != "":
			return ref, fmt.Errorf("%s failed before any disruption: %s %s; use a request that the app answers", r, o.Failure, o.Detail)
		}
		ref.took = max(ref.took, o.Last.Sub(o.Began))
	}
	a, b := both[0], both[1]
	ref.status, ref.bytes, ref.tail = a.Status, a.Bytes, a.Tail[max(0, len(a.Tail)-shortTail):]
	ref.sameLength = a.Bytes == b.Bytes
	ref.sameTail = len(ref.tail) > 0 && bytes.HasSuffix(b.Tail, ref.tail)
	return ref, nil
}

// isShort reports whether a response that is complete by its framing lacks its end.
func (ref reference) isShort(o traffic.Outcome) bool {
	switch {
	case ref.sameLength:
		return o.Bytes < ref.bytes
	case ref.sameTail:
		return !bytes.HasSuffix(o.Tail, ref.tail)
	}
	return false
}
