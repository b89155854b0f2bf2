package drain

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Join makes one data plane of several, for a program that has an HTTP server, a gRPC server and a
// worker: they are drained together, and end together when none is busy. Every call goes to all of
// them at once. One that has ended by itself is left out; Exited is closed when all have ended.
//
// Each must return the same channel from every call of Changes. Where one returns nil, Activity of all is polled.
//
// The planes belong to the joined one. Its goroutines end when every plane has ended.
func Join(planes ...DataPlane) DataPlane {
	if len(planes) == 1 {
		return planes[0]
	}
	j := &joined{changes: make(chan struct{}, 1), exited: make(chan struct{})}
	for _, p := range planes {
		j.members = append(j.members, &member{DataPlane: p})
	}
	go func() {
		for _, m := range j.members {
			<-m.Exited()
		}
		close(j.exited)
	}()
	return j
}

type joined struct {
	members []*member
	follow  sync.Once
	changes chan struct{}
	exited  chan struct{}
}

// member is one of the planes. Its fields are guarded by Run's rule of one call at a time.
type member struct {
	DataPlane
	last Activity // kept when it has ended, so that the sums never decrease
}

// each calls f for every plane that has not ended, all at once, and waits for all of them.
func (j *joined) each(f func(i int, m *member) error) error {
	errs := make([]error, len(j.members))
	var calls sync.WaitGroup
	for i, m := range j.members {
		if !hasEnded(m.Exited()) {
			calls.Go(func() { errs[i] = f(i, m) })
		}
	}
	calls.Wait()
	return errors.Join(errs...)
}

func (j *joined) all(ctx context.Context, call func(DataPlane, context.Context) error) error {
	return j.each(func(_ int, m *member) error { return call(m.DataPlane, ctx) })
}

func (j *joined) Drain(ctx context.Context) error         { return j.all(ctx, DataPlane.Drain) }
func (j *joined) Resume(ctx context.Context) error        { return j.all(ctx, DataPlane.Resume) }
func (j *joined) StopAccepting(ctx context.Context) error { return j.all(ctx, DataPlane.StopAccepting) }
func (j *joined) Close(ctx context.Context) error         { return j.all(ctx, DataPlane.Close) }

// Activity is the sum. One unknown activity makes it unknown.
func (j *joined) Activity(ctx context.Context) (Activity, error) {
	err := j.each(func(_ int, m *member) error {
		a, err := m.DataPlane.Activity(ctx)
		if err == nil {
			m.last = a
		}
		return err
	})
	if err != nil {
		return Activity{}, err
	}
	sum := Activity{Known: true}
	for _, m := range j.members {
		sum.Arrivals += m.last.Arrivals
		sum.Raced += m.last.Raced
		sum.Failed += m.last.Failed
		sum.OpaqueEnds.Ended += m.last.OpaqueEnds.Ended
		sum.OpaqueEnds.Answered += m.last.OpaqueEnds.Answered
		sum.OpaqueEnds.Dropped += m.last.OpaqueEnds.Dropped
		if hasEnded(m.Exited()) {
			continue
		}
		sum.Known = sum.Known && m.last.Known
		sum.Connections += m.last.Connections
		sum.Busy += m.last.Busy
		sum.Opaque += m.last.Opaque
		sum.ArrivalsAsOf = sooner(sum.ArrivalsAsOf, m.last.ArrivalsAsOf)
	}
	return sum, nil
}

// Changes merges the signals of all planes.
func (j *joined) Changes() <-chan struct{} {
	for _, m := range j.members {
		if m.Changes() == nil && !hasEnded(m.Exited()) {
			return nil
		}
	}
	j.follow.Do(func() {
		for _, m := range j.members {
			go j.forward(m)
		}
	})
	return j.changes
}

// forward passes the signals of one plane on, the last of them when it ends.
func (j *joined) forward(m *member) {
	for ended := false; !ended; {
		select {
		case <-m.Changes():
		case <-m.Exited():
			ended = true
		}
		select {
		case j.changes <- struct{}{}:
		default:
		}
	}
}

func (j *joined) CloseIdle(ctx context.Context, idleFor time.Duration) error {
	return j.each(func(_ int, m *member) error { return m.DataPlane.CloseIdle(ctx, idleFor) })
}

func (j *joined) Open(ctx context.Context, limit int) ([]Conversation, error) {
	open, err := j.conversations(func(m *member) ([]Conversation, error) { return m.DataPlane.Open(ctx, limit) })
	return open[:min(limit, len(open))], err
}

func (j *joined) LastCall(ctx context.Context, window time.Duration) ([]Conversation, error) {
	return j.conversations(func(m *member) ([]Conversation, error) { return m.DataPlane.LastCall(ctx, window) })
}

// conversations are those of all planes, the oldest first.
func (j *joined) conversations(f func(*member) ([]Conversation, error)) ([]Conversation, error) {
	lists := make([][]Conversation, len(j.members))
	err := j.each(func(i int, m *member) (err error) {
		lists[i], err = f(m)
		return err
	})
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b Conversation) int { return cmp.Compare(b.Age, a.Age) })
	return all, err
}

// Assumed lists the assumptions of the planes.
func (j *joined) Assumed() []string { return j.assumptions(Assumer.Assumed) }

// Warnings are those of the planes.
func (j *joined) Warnings() []string { return j.assumptions(Assumer.Warnings) }

func (j *joined) assumptions(of func(Assumer) []string) (out []string) {
	for _, m := range j.members {
		if a, ok := m.DataPlane.(Assumer); ok {
			out = append(out, of(a)...)
		}
	}
	return out
}

// Cut lists the conversations that the programs of the planes have cut.
func (j *joined) Cut() (all []Conversation) {
	for _, m := range j.members {
		all = append(all, cutBy(m.DataPlane)...)
	}
	return all
}

// Kill does not wait for one plane before it kills the next.
func (j *joined) Kill() {
	var all sync.WaitGroup
	for _, m := range j.members {
		all.Go(m.DataPlane.Kill)
	}
	all.Wait()
}

func (j *joined) Exited() <-chan struct{} { return j.exited }
