package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a container that reacts to its stop signal as a course's container does.
type member struct {
	podend.Container
	busy time.Duration // when the last request in flight would end
	done chan struct{}
	once sync.Once
	from time.Time // the pod's deletion
}

func (m *member) Kill() error           { m.once.Do(func() { close(m.done) }); return nil }
func (m *member) Done() <-chan struct{} { return m.done }

func (m *member) Terminate() error { return m.react(m.Reaction) }

func (m *member) react(r podend.Reaction) error {
	switch r {
	case podend.Exits:
		return m.Kill()
	case podend.Finishes, podend.ServesOn:
		time.AfterFunc(max(0, time.Until(m.from.Add(m.busy))), func() { _ = m.Kill() })
	case podend.FixedDrain:
		time.AfterFunc(m.Drain, func() { _ = m.Kill() })
	}
	return nil
}

// Run is the container's preStop hook, which stops the app itself if it Stops.
func (m *member) Run(ctx context.Context) error {
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	at := m.Hook.Duration
	if m.Hook.Stops {
		at = m.Hook.StopsAt
	}
	if !wait(at) {
		return context.Cause(ctx)
	}
	if m.Hook.Stops {
		_ = m.react(m.Hook.Stop)
		if !wait(m.Hook.Duration - at) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// TestCourseOfAnyPod: the computed course of a pod equals what the kubelet does to it, for all hooks, reactions, orders and
// grace periods.
func TestCourseOfAnyPod(t *testing.T) {
	// No two durations end in the same millisecond, so that no exit meets a SIGKILL.
	seconds := func(t *rapid.T, name string, most, odd int) time.Duration {
		return time.Duration(rapid.IntRange(0, most*10).Draw(t, name))*100*time.Millisecond + time.Duration(odd)*time.Millisecond
	}
	rapid.Check(t, func(rt *rapid.T) {
		p := podend.Pod{Grace: time.Duration(rapid.IntRange(1, 20).Draw(rt, "grace")) * time.Second}
		busy := seconds(rt, "busy", 30, 50)
		apps := rapid.IntRange(1, 3).Draw(rt, "apps")
		for i := range apps + rapid.IntRange(0, 2).Draw(rt, "sidecars") {
			k := podend.Container{Name: string(rune('a' + i)), Role: podend.App, Native: i >= apps}
			reactions := podend.Reactions()
			if k.Native {
				k.Role, k.Drain = podend.Sidecar, seconds(rt, "drain", 10, 3+i)
				reactions = []podend.Reaction{podend.Exits, podend.Ignores, podend.FixedDrain}
			}
			k.Reaction = rapid.SampledFrom(reactions).Draw(rt, "reaction")
			if rapid.Bool().Draw(rt, "hook") {
				k.Hook = podend.Hook{Kind: podend.SleepHook, Duration: seconds(rt, "sleep", 25, 11+i), IsKnown: true}
				if k.Hook.Stops = !k.Native && rapid.Bool().Draw(rt, "stops"); k.Hook.Stops {
					k.Hook.StopsAt = min(k.Hook.Duration, p.Grace) / 2
					k.Hook.Stop = rapid.SampledFrom(podend.Reactions()[:3]).Draw(rt, "stop")
				}
			}
			p.Containers = append(p.Containers, k)
		}
		want := p.Course(podend.Traffic{Busy: busy})
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var members []Member
			for i := len(p.Containers) - 1; i >= 0; i-- { // the manifest's order: the sidecar that ends last is first
				m := &member{Container: p.Containers[i], busy: busy, done: make(chan struct{}), from: began}
				one := Member{Container: m, Native: m.Native}
				if m.Hook.Kind == podend.SleepHook {
					one.Hook = m
				}
				members = append(members, one)
			}
			for i, e := range Terminate(t.Context(), members, p.Grace) {
				i = len(members) - 1 - i
				k, w := p.Containers[i], want.Containers[i]
				if errors.Is(e.HookError, context.Canceled) {
					rt.Fatal(e.HookError)
				}
				if at := e.Terminated.Sub(began); !e.Terminated.IsZero() && !k.Hook.Stops && at != w.Signal {
					rt.Errorf("%+v: SIGTERM after %v, computed %v", k, at, w.Signal)
				}
				if killed := !e.Killed.IsZero(); killed != w.Killed || killed && e.Killed.Sub(began) != w.Kill {
					rt.Errorf("%+v: SIGKILL %v after %v, computed %v after %v", k, killed, e.Killed.Sub(began), w.Killed, w.Kill)
				}
				if at := e.Gone.Sub(began); at != w.Gone {
					rt.Errorf("%+v: gone after %v, computed %v", k, at, w.Gone)
				}
			}
		})
	})
}
