package agent

import (
	"context"
	"net/http"
	"sync"
)

// presences are the app containers whose hook has left a process that holds a connection
// to POST /present: it ends with its container, whatever that does until then.
//
// A sidecar sees neither the processes nor the end of another container. That an app has no
// socket does not say that it has ended: it may write a file for 20 s and then tell its
// database.
type presences struct {
	mu     sync.Mutex
	alive  int
	ended  int           // since the termination began
	change chan struct{} // closed and replaced at every change
	closed chan struct{} // the agent ends and no longer waits for them
	close  sync.Once
}

func newPresences() *presences {
	return &presences{change: make(chan struct{}), closed: make(chan struct{})}
}

func (p *presences) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.change)
	p.change = make(chan struct{})
}

// begin starts counting with a termination. Containers that have ended before were restarted.
func (p *presences) begin() { p.set(func() { p.ended = 0 }) }

// end lets go of those that are left.
func (p *presences) end() { p.close.Do(func() { close(p.closed) }) }

// awaitGone waits until at least so many containers have ended, and none is left.
func (p *presences) awaitGone(ctx context.Context, containers int) error {
	for {
		p.mu.Lock()
		gone, change := p.alive == 0 && p.ended >= containers, p.change
		p.mu.Unlock()
		if gone {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// HeaderPresence in the answer to an app's hook asks it to leave a process for /present.
const HeaderPresence = "Lastcall-Presence"

// present is held open for as long as an app container lives.
func (s *status) present(w http.ResponseWriter, r *http.Request) {
	p := s.a.presences
	p.set(func() { p.alive++ })
	defer p.set(func() { p.alive--; p.ended++ })
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	select {
	case <-r.Context().Done():
	case <-p.closed:
	}
}

// wantsPresence says whether the end of the app is to be seen by a process in its container.
// A native sidecar is ended after the app by the kubelet, and processes are seen where the
// pod shares them.
func (a *agent) wantsPresence() bool {
	return a.outbound != nil && a.Sidecar != NativeSidecar && a.phases.isDone() && !sharesProcesses()
}
