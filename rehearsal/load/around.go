package load

import (
	"context"
	"sync"
	"time"
)

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
	if err := Pause(ctx, warmUp); err != nil {
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
	if err := Pause(ctx, lead); err != nil {
		return err
	}
	if err := disrupt(); err != nil {
		return err
	}
	return Pause(ctx, after)
}

// Pause waits, and returns the cause of ctx's end if that comes first.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
