package observe

import (
	"context"
	"errors"
	"os"
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

// OpenNamespace returns the Open of the node with this process table. The kernel reports from the return of Open on,
// and what the node's own processes do until ctx ends.
func OpenNamespace(ctx context.Context, proc string) Open {
	process := nodeProcess(proc)
	node, _ := observe.OpenNode(ctx, filepath.Join(process, "ns", "net")) // else the times show which are probes
	return func(path string, known observe.Options) (Watch, error) {
		if _, err := os.Stat(process); err != nil && filepath.Base(process) != "1" { // the kubelet has restarted
			process = nodeProcess(proc)
		}
		known.Local, known.Node = addresses(filepath.Join(process, "ns", "net")), node
		w, err := observe.Open(path, known)
		if err != nil {
			return nil, err
		}
		if err := w.Standby(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
		return w, nil
	}
}
