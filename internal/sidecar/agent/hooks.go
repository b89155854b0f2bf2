package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/phase"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// hooks are the preStop hooks that wait. The kubelet runs one for each container that ends, but a peer with the pod's
// token can send any number: hooks of the same ports share one wait.
type hooks struct {
	mu    sync.Mutex
	waits map[string]*hookWait // by the container, see hookKey
}

// hookWait is the wait that the hooks of one container share.
type hookWait struct {
	joined int
	cancel context.CancelFunc
	done   chan struct{} // closed when err is set
	err    error
}

func newHooks() *hooks { return &hooks{waits: make(map[string]*hookWait)} }

// join waits for the same as the other hooks with this key: for wait, which begins with the first of them and is
// cancelled with the last.
func (h *hooks) join(ctx context.Context, key string, wait func(context.Context) error) error {
	h.mu.Lock()
	w := h.waits[key]
	if w == nil {
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		w = &hookWait{cancel: cancel, done: make(chan struct{})}
		h.waits[key] = w
		go func() {
			defer close(w.done)
			w.err = wait(shared)
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.waits[key] == w {
				delete(h.waits, key)
			}
		}()
	}
	w.joined++
	h.mu.Unlock()

	select {
	case <-w.done:
	case <-ctx.Done():
	}
	h.mu.Lock()
	w.joined--
	last := w.joined == 0
	if last && h.waits[key] == w {
		delete(h.waits, key) // a hook that arrives from now on waits for itself
	}
	h.mu.Unlock()
	if last {
		w.cancel()
		<-w.done // wait has an owner to its end
	}
	if err := ctx.Err(); err != nil { // w.err is written while others wait
		return err
	}
	return w.err
}

// maxContainers is how many containers of a pod the ports of their hooks distinguish. A peer chooses the ports.
const maxContainers = 16

// container is the ports of a hook as far as they distinguish it: nil, for all ports, once there are too many others.
func (h *hooks) container(ports []uint16) []uint16 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waits := h.waits[hookKey(ports)]; !waits && len(h.waits) >= maxContainers {
		return nil
	}
	return ports
}

// sidecarKey is the key of the sidecar's own hooks.
const sidecarKey = "sidecar"

// hookKey is the key of the hooks of a container with these ports; nil for all ports.
func hookKey(ports []uint16) string {
	if ports == nil {
		return "all"
	}
	return fmt.Sprint(ports)
}

// hookPorts are the ports of the container whose hook a request is: ?ports=8080,9090, in order. nil (without the
// parameter) means every port; an empty list means none.
func hookPorts(r *http.Request) []uint16 {
	query := r.URL.Query()
	if !query.Has("ports") {
		return nil
	}
	out := []uint16{}
	for text := range strings.SplitSeq(query.Get("ports"), ",") {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil {
			out = append(out, uint16(port))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

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

func newPresences() *presences { return &presences{closed: make(chan struct{})} }

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

// wantsPresence reports whether the app's exit has to be detected by a process in its container: from each phase in
// which an app's hook returns because the pod ends. The kubelet ends a native sidecar after the app, and processes are
// visible where the pod shares them.
func (a *agent) wantsPresence() bool {
	return a.outbound != nil && a.Pod.Sidecar != NativeSidecar && a.phases.snapshot().phase >= drain.Finishing &&
		!process.AreShared()
}

// goneAtWork is how long no other process may have a socket before an app without a stop signal counts as exited, when
// only its sockets are visible.
const goneAtWork = 10 * time.Second

// awaitAppGone waits until the app has exited: by its processes where the pod has shareProcessNamespace, otherwise by
// its sockets, of which it must have had none for as long as quiet: an app without one may still be at work. Unless
// seen is true, the app must have appeared first: a sidecar may start before the app.
func awaitAppGone(ctx context.Context, quiet time.Duration, seen bool) error {
	table, err := sockdiag.OpenTable()
	if err != nil {
		return err
	}
	defer table.Close()
	others := table.Others
	if process.AreShared() {
		others, quiet = process.Others, 0
	}
	last := time.Now()
	late := poll.Until(ctx, appGoneLook, func() bool {
		var n int
		if n, err = others(); n > 0 {
			last, seen = time.Now(), true
		}
		return err != nil || seen && n == 0 && time.Since(last) >= quiet
	})
	return cmp.Or(err, late)
}

// appGoneLook is the polling interval.
const appGoneLook = 20 * time.Millisecond

// followApp ends the agent when the app has exited by itself: the sidecar of a job must not outlive it.
func (a *agent) followApp(ctx context.Context) <-chan struct{} {
	if !a.Pod.ExitWithApp {
		return nil
	}
	gone := make(chan struct{})
	go func() {
		err := awaitAppGone(ctx, goneAtWork, false)
		if err == nil {
			close(gone)
		} else if ctx.Err() == nil {
			a.log.Warn("cannot watch the app; the sidecar will not exit with it", "error", err)
		}
	}()
	return gone
}
