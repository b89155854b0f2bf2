package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/phase"
)

// Hooks of one container share a wait, which lasts until the last of them has gone.
func TestHooksJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHooks()
		waits, cancelled := 0, 0
		answer := make(chan error)
		wait := func(ctx context.Context) error {
			waits++
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				cancelled++
				return ctx.Err()
			}
		}
		results := make(chan error, 10)
		join := func(ctx context.Context) { go func() { results <- h.join(ctx, "all", wait) }(); synctest.Wait() }

		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		join(gone)
		join(t.Context())
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) || waits != 1 || cancelled != 0 {
			t.Errorf("the first has gone: %v, %d waits, %d cancelled", err, waits, cancelled)
		}
		answer <- phase.ErrCancelled
		if err := <-results; !errors.Is(err, phase.ErrCancelled) {
			t.Errorf("the second got %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		join(ctx)
		join(ctx)
		cancel()
		<-results
		<-results
		if waits != 2 || cancelled != 1 || len(h.waits) != 0 {
			t.Errorf("all have gone: %d waits, %d cancelled, %d left", waits, cancelled, len(h.waits))
		}
	})
}

// A peer chooses the ports: beyond a limit they no longer distinguish containers.
func TestHooksOfManyContainers(t *testing.T) {
	h := newHooks()
	for port := range uint16(containersMost) {
		h.waits[hookKey([]uint16{port})] = &hookWait{}
	}
	if known, other := h.container([]uint16{3}), h.container([]uint16{8080}); len(known) != 1 || other != nil {
		t.Errorf("%v and %v; want [3] and all ports", known, other)
	}
}
