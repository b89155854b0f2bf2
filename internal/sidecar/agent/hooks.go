package agent

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/phase"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

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
	alive int
	ended int  // since the termination began
	over  bool // the agent no longer waits for them
}

// begin starts to count at the beginning of a termination. Containers that exited before were restarted.
func (p *presences) begin() { p.Set(func() { p.ended = 0 }) }

// end releases the remaining connections.
func (p *presences) end() { p.Set(func() { p.over = true }) }

// awaitGone waits until at least this many containers have exited and none is left.
func (p *presences) awaitGone(ctx context.Context, containers int) error {
	return p.Await(ctx, func() bool { return p.alive == 0 && p.ended >= containers })
}

// HeaderPresence in the response to an app's hook requests a process that holds POST /present.
const HeaderPresence = "Lastcall-Presence"

// present is held open as long as an app container runs.
func (s *status) present(w http.ResponseWriter, r *http.Request) {
	p := &s.a.presences
	p.Set(func() { p.alive++ })
	defer p.Set(func() { p.alive--; p.ended++ })
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	_ = p.Await(r.Context(), func() bool { return p.over })
}

// wantsPresence reports whether the app's exit has to be detected by a process in its container: from each phase in
// which an app's hook returns because the pod ends. The kubelet ends a native sidecar after the app, and processes are
// visible where the pod shares them.
func (a *agent) wantsPresence() bool {
	return a.outbound != nil && a.Pod.Sidecar != NativeSidecar && a.phases.now().phase >= drain.Finishing &&
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

// followPod ends the agent when the pod's app has exited by itself: the sidecar of a job must not outlive it.
func (a *agent) followPod(ctx context.Context) {
	if !a.Pod.ExitWithApp {
		return
	}
	if err := awaitAppGone(ctx, goneAtWork, false); err == nil {
		a.appExited(ctx)
	} else if ctx.Err() == nil {
		a.log.Warn("cannot watch the app; the sidecar will not exit with it", "error", err)
	}
}
