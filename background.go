package lastcall

import (
	"context"
	"errors"
	"sync"
	"time"
)

// stopMargin is how long before SIGKILL Serve no longer waits for background functions.
const stopMargin = 250 * time.Millisecond

// background are the running functions of WithBackground.
type background struct {
	cancel    context.CancelFunc
	failed    chan struct{} // closed when a function has returned an error
	functions int
	running   sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

func (s *settings) startBackground(ctx context.Context) *background {
	b := &background{failed: make(chan struct{}), functions: len(s.background)}
	ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, f := range s.background {
		b.running.Go(func() {
			if err := f(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
				b.fail(err)
			}
		})
	}
	return b
}

func (b *background) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errs) == 0 {
		close(b.failed)
	}
	b.errs = append(b.errs, err)
}

// stop ends the functions' context, and waits for them until a moment.
func (b *background) stop(until time.Time) error {
	b.cancel()
	if b.functions == 0 {
		return nil
	}
	done := make(chan struct{})
	go func() { b.running.Wait(); close(done) }()
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		b.fail(errors.New("a function of WithBackground has not returned before the end of the grace period"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.errs...)
}
