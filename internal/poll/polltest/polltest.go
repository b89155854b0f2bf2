// Package polltest lets tests wait for changes that no event announces.
package polltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// patience is longer than anything takes on a busy machine.
const patience = time.Minute

// Eventually waits until is returns true. It fails the test after a minute, with what and the details.
func Eventually(t testing.TB, what string, is func() bool, details ...fmt.Stringer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if until(ctx, is) != nil {
		t.Fatalf("not within %v: %s\n%v", patience, what, details)
	}
}

// NoError waits until check returns nil. It fails the test after a minute, with check's last error.
func NoError(t testing.TB, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if until(ctx, func() bool { err = check(); return err == nil }) != nil {
		t.Fatalf("still after %v: %v", patience, err)
	}
}

// until calls is at once, after a millisecond, and then at longer intervals: many checks are requests, and a thousand
// per second would take a processor from the tests that run at the same time.
func until(ctx context.Context, is func() bool) (err error) {
	for every := time.Millisecond; err == nil && !is(); every = min(2*every, 10*time.Millisecond) {
		err = poll.Pause(ctx, every)
	}
	return err
}
