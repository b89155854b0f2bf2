package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
)

// Container is a container that the kubelet terminates, such as a Process.
type Container interface {
	Terminate() error // SIGTERM to PID 1
	Kill() error      // SIGKILL to all of it
	Done() <-chan struct{}
}

// Member is a container in its pod.
type Member struct {
	Container Container
	Hook      Hook // nil: none

	// Native marks a restartable init container (restartPolicy: Always). They end after the others, in reverse order.
	Native bool
}

// Ending has the kubelet's actions on one container with their times; zero: it did not act.
type Ending struct {
	HookEnded  time.Time
	HookError  error
	Terminated time.Time // SIGTERM
	Killed     time.Time // SIGKILL
	Gone       time.Time // reaped
}

var errContainerGone = errors.New("the container is gone")

// Terminate ends a pod as the kubelet does (killContainersWithSyncResult and killContainer of pkg/kubelet/kuberuntime),
// and returns when its last container is gone. The endings are in the members' order.
//
//  1. Every container's preStop hook starts at once, a native sidecar's as well.
//  2. Its duration is subtracted from the container's grace period, in whole seconds rounded down. At the end of the
//     grace period the kubelet no longer waits for the hook.
//  3. A native sidecar then waits until every other container and each sidecar after it is gone, or its grace period
//     has ended; that time is subtracted as well.
//  4. SIGTERM, and SIGKILL when the rest of the grace period, at least 2 s, has
//     passed.
//
// The end of ctx kills all containers at once.
func Terminate(ctx context.Context, members []Member, grace time.Duration) []Ending {
	endings := make([]Ending, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { m.end(ctx, &endings[i], grace, predecessors(members, i)) })
	}
	all.Wait()
	return endings
}

// predecessors are the members that must be gone before member i gets its SIGTERM.
func predecessors(members []Member, i int) []Container {
	if !members[i].Native {
		return nil
	}
	var out []Container
	for j, m := range members {
		if j != i && (!m.Native || j > i) {
			out = append(out, m.Container)
		}
	}
	return out
}

func (m Member) end(ctx context.Context, e *Ending, grace time.Duration, before []Container) {
	hooks, hookOver := context.WithCancelCause(context.WithoutCancel(ctx))
	var hook sync.WaitGroup
	defer func() {
		hookOver(errContainerGone)
		hook.Wait()
		if m.Hook != nil && e.HookEnded.IsZero() {
			e.HookEnded = time.Now()
		}
	}()
	left := grace
	if m.Hook != nil {
		began := time.Now()
		over := make(chan error, 1)
		hook.Go(func() { over <- m.Hook.Run(hooks) })
		limit := time.NewTimer(left)
		defer limit.Stop()
		select {
		case e.HookError = <-over:
			e.HookEnded = time.Now()
		case <-limit.C:
			e.HookError = context.DeadlineExceeded
		case <-m.Container.Done():
			// The kubelet does not notice: it waits for its hook, which ends here.
			hookOver(errContainerGone)
			e.HookError = <-over
			e.HookEnded = time.Now()
		case <-ctx.Done():
		}
		left -= wholeSeconds(began)
	}
	if left > 0 && len(before) > 0 {
		left -= waitForTurn(ctx, before, left)
	}
	e.stop(ctx, m.Container, max(left, drain.LeastGrace))
}

// waitForTurn returns how long it waited, in whole seconds rounded down.
func waitForTurn(ctx context.Context, before []Container, most time.Duration) time.Duration {
	began := time.Now()
	limit := time.NewTimer(most)
	defer limit.Stop()
	for _, c := range before {
		select {
		case <-c.Done():
		case <-limit.C:
			return wholeSeconds(began)
		case <-ctx.Done():
			return wholeSeconds(began)
		}
	}
	return wholeSeconds(began)
}

func wholeSeconds(since time.Time) time.Duration { return time.Since(since).Truncate(time.Second) }

// hasEnded reports whether Done is closed.
func hasEnded(c Container) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// stop is the runtime's StopContainer.
func (e *Ending) stop(ctx context.Context, c Container, timeout time.Duration) {
	if !hasEnded(c) && ctx.Err() == nil {
		e.Terminated = time.Now()
		_ = c.Terminate()
		limit := time.NewTimer(timeout)
		defer limit.Stop()
		select {
		case <-c.Done():
		case <-limit.C:
		case <-ctx.Done():
		}
	}
	if !hasEnded(c) {
		e.Killed = time.Now()
		_ = c.Kill()
		<-c.Done()
	}
	e.Gone = time.Now()
	if at, ok := c.(interface{ Ended() time.Time }); ok {
		e.Gone = at.Ended()
	}
}

// Hook is a preStop hook. Run returns when it has ended; ctx ends when its container has, which ends the hook.
type Hook interface {
	Run(ctx context.Context) error
}

// Sleep is the sleep action.
type Sleep time.Duration

// Run waits.
func (s Sleep) Run(ctx context.Context) error { return poll.Pause(ctx, time.Duration(s)) }

// HTTPGet is the httpGet action: a status below 400 is a success.
type HTTPGet string

// Run sends the request.
func (h HTTPGet) Run(ctx context.Context) error {
	status, err := probe.Get(ctx, string(h), http.Header{}, new(net.Dialer).DialContext)
	if err == nil && status >= http.StatusBadRequest {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return fmt.Errorf("preStop httpGet %s: %w", h, err)
	}
	return nil
}

// Exec is the exec action: another program in the container.
type Exec struct {
	Node    *Node
	Command Command
}

// Run starts the program and waits for its end; anything but exit 0 is an error.
func (e Exec) Run(ctx context.Context) error {
	p, err := e.Node.Start(e.Command)
	if err != nil {
		return fmt.Errorf("preStop exec: %w", err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Kill() // it ends with its container
	}
	if ending := p.Ending(); ending != "exit 0" {
		return fmt.Errorf("preStop exec %s: %s", e.Command.Args[0], ending)
	}
	return nil
}

// Func is a hook of the rehearsal itself.
type Func func(ctx context.Context) error

// Run calls f.
func (f Func) Run(ctx context.Context) error { return f(ctx) }
