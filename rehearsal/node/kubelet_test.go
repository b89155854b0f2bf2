package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a container that ends a while after SIGTERM, or by itself.
type fake struct {
	name   string
	after  time.Duration // from SIGTERM to its end; negative: it does not respect it
	self   time.Duration // ends by itself then; zero: it does not
	events *diary
	done   chan struct{}
	once   sync.Once
}

// diary has the events of all containers of a pod, with their times.
type diary struct {
	began time.Time

	mu    sync.Mutex // guards lines
	lines []string
}

func newDiary() *diary { return &diary{began: time.Now()} }

func (d *diary) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, what+" "+time.Since(d.began).Round(time.Millisecond).String())
}

func (f *fake) say(what string) { f.events.note(f.name + " " + what) }

func (f *fake) Terminate() error {
	f.say("TERM")
	if f.after >= 0 {
		time.AfterFunc(f.after, f.end)
	}
	return nil
}

func (f *fake) Kill() error {
	f.say("KILL")
	f.end()
	return nil
}

func (f *fake) end() {
	f.once.Do(func() {
		f.say("gone")
		close(f.done)
	})
}

func (f *fake) Done() <-chan struct{} { return f.done }

const never = time.Duration(-1)

// Every row is a pod and what its containers live to see.
func TestTerminate(t *testing.T) {
	type member struct {
		name   string
		hook   Hook
		native bool
		after  time.Duration
		self   time.Duration
	}
	hang := Func(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
	fails := Func(func(context.Context) error { return errors.New("exit 1") })
	const sec = time.Second
	for _, tt := range []struct {
		name   string
		grace  time.Duration
		pod    []member
		events string
	}{
		{"SIGTERM goes to all at once", 30 * sec, []member{
			{name: "app", after: sec}, {name: "sidecar", after: 2 * sec},
		}, "app TERM 0s, sidecar TERM 0s, app gone 1s, sidecar gone 2s"},
		{"SIGKILL at the end of the grace period", 7 * sec, []member{{name: "app", after: never}},
			"app TERM 0s, app KILL 7s, app gone 7s"},
		{"a preStop holds only its own container's SIGTERM", 30 * sec, []member{
			{name: "app", hook: Sleep(5 * sec)}, {name: "sidecar"},
		}, "sidecar TERM 0s, sidecar gone 0s, app TERM 5s, app gone 5s"},
		{"a preStop's time is taken off the grace period", 10 * sec, []member{
			{name: "app", hook: Sleep(4 * sec), after: never},
		}, "app TERM 4s, app KILL 10s, app gone 10s"},
		{"in whole seconds rounded down, as the kubelet counts", 10 * sec, []member{
			{name: "app", hook: Sleep(49 * sec / 10), after: never},
		}, "app TERM 4.9s, app KILL 10.9s, app gone 10.9s"},
		{"2 s are left to a container whose preStop used all of it", 10 * sec, []member{
			{name: "app", hook: Sleep(15 * sec), after: never},
		}, "app TERM 10s, app KILL 12s, app gone 12s"},
		{"also when it hangs", 10 * sec, []member{{name: "app", hook: hang, after: sec}}, "app TERM 10s, app gone 11s"},
		{"a preStop that fails stops nothing", 10 * sec, []member{{name: "app", hook: fails, after: sec}},
			"app TERM 0s, app gone 1s"},
		{"a container that ends during its preStop gets no signal", 10 * sec, []member{
			{name: "app", hook: hang, self: 3 * sec},
		}, "app gone 3s"},
		{"a native sidecar ends after the app", 30 * sec, []member{
			{name: "sidecar", native: true, after: sec},
			{name: "app", after: 3 * sec},
		}, "app TERM 0s, app gone 3s, sidecar TERM 3s, sidecar gone 4s"},
		{"native sidecars end in reverse order", 30 * sec, []member{
			{name: "first", native: true, after: sec},
			{name: "second", native: true, after: sec},
			{name: "app", after: sec},
			{name: "other", after: 2 * sec},
		}, "app TERM 0s, other TERM 0s, app gone 1s, other gone 2s, second TERM 2s, second gone 3s, first TERM 3s, first gone 4s"},
		{"a native sidecar's preStop begins with the app's", 30 * sec, []member{
			{name: "sidecar", native: true, hook: Sleep(sec)},
			{name: "app", hook: Sleep(4 * sec)},
		}, "app TERM 4s, app gone 4s, sidecar TERM 4s, sidecar gone 4s"},
		{"a native sidecar has 2 s after an app that used the grace period", 5 * sec, []member{
			{name: "sidecar", native: true, after: never},
			{name: "app", after: never},
		}, "app TERM 0s, app KILL 5s, app gone 5s, sidecar TERM 5s, sidecar KILL 7s, sidecar gone 7s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := newDiary()
				var members []Member
				for _, m := range tt.pod {
					f := &fake{name: m.name, after: m.after, self: m.self, events: events, done: make(chan struct{})}
					if m.self > 0 {
						time.AfterFunc(m.self, f.end)
					}
					members = append(members, Member{f, m.hook, m.native})
				}
				endings := Terminate(t.Context(), members, tt.grace)
				if got, want := sorted(events.lines), sorted(strings.Split(tt.events, ", ")); !slices.Equal(got, want) {
					t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
				}
				for i, e := range endings {
					if e.Gone.IsZero() {
						t.Errorf("%s: no time of its end", tt.pod[i].name)
					}
				}
			})
		})
	}
}

// sorted puts what happens to several containers at one moment into one order.
func sorted(events []string) []string {
	out := slices.Clone(events)
	slices.Sort(out)
	return out
}

func TestTerminateBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := newDiary()
		f := &fake{name: "app", after: never, events: events, done: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		Terminate(ctx, []Member{{f, Sleep(20 * time.Second), false}}, 30*time.Second)
		if got := strings.Join(events.lines, ", "); got != "app KILL 3s, app gone 3s" {
			t.Errorf("got %s", got)
		}
	})
}
