package agent

import (
	"context"
	"net/http"
	"sync"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/phase"
)

// presences counts app containers. In each of them the hook leaves a process that holds a POST /present open; the
// process ends with its container.
//
// A sidecar cannot see the processes or the exit of another container. An app without a socket has not necessarily
// exited: it may write a file for 20 s and then update its database.
type presences struct {
	phase.State
	alive  int
	ended  int           // since the termination began
	closed chan struct{} // the agent no longer waits for them
	close  sync.Once
}

func newPresences() *presences {
	return &presences{closed: make(chan struct{})}
}

// begin starts to count at the beginning of a termination. Containers that exited before were restarted.
func (p *presences) begin() { p.Set(func() { p.ended = 0 }) }

// end releases the remaining connections.
func (p *presences) end() { p.close.Do(func() { close(p.closed) }) }

// awaitGone waits until at least this many containers have exited and none is left.
func (p *presences) awaitGone(ctx context.Context, containers int) error {
	return p.Await(ctx, func() bool { return p.alive == 0 && p.ended >= containers })
}

// HeaderPresence in the response to an app's hook requests a process that holds POST /present.
const HeaderPresence = "Lastcall-Presence"

// present is held open as long as an app container runs.
func (s *status) present(w http.ResponseWriter, r *http.Request) {
	p := s.a.presences
	p.Set(func() { p.alive++ })
	defer p.Set(func() { p.alive--; p.ended++ })
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	select {
	case <-r.Context().Done():
	case <-p.closed:
	}
}

// wantsPresence reports whether the app's exit has to be detected by a process in its container. The kubelet ends a
// native sidecar after the app, and processes are visible where the pod shares them.
func (a *agent) wantsPresence() bool {
	return a.outbound != nil && a.Pod.Sidecar != NativeSidecar && a.phases.snapshot().phase == drain.Done &&
		!sharesProcesses()
}
