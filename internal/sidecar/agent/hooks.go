package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.err
}

// containersMost is how many containers of a pod the ports of their hooks distinguish. A peer chooses the ports.
const containersMost = 16

// container is the ports of a hook as far as they distinguish it: nil, for all ports, once there are too many others.
func (h *hooks) container(ports []uint16) []uint16 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waits := h.waits[hookKey(ports)]; !waits && len(h.waits) >= containersMost {
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
