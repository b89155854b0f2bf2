package observe

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

// Watch is the view into a pod's network namespace: *observe.Watch, or a fake in tests.
type Watch interface {
	Reacted(since time.Time) time.Time
	Listening() []uint16
	Begin(at time.Time, by string) error
	End(at time.Time, exit observe.Exit) observe.Termination
	Close() error
}

// Open opens the network namespace behind a path such as /proc/PID/ns/net, of a pod whose spec shows these options.
type Open func(path string, known observe.Options) (Watch, error)

// OpenNamespace returns the Open of the node with this process table. The kernel reports from the return of Open on, and what
// the node's own processes do until ctx ends.
func OpenNamespace(ctx context.Context, proc string) Open {
	node, _ := observe.OpenNode(ctx, filepath.Join(proc, "1", "ns", "net")) // else probes are known by their times
	return func(path string, known observe.Options) (Watch, error) {
		known.Local, known.Node = addresses(proc), node
		w, err := observe.Open(path, known)
		if err != nil {
			return nil, err
		}
		if err := w.Arm(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
		return w, nil
	}
}
