package observe

import (
	"errors"
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

// OpenNamespace returns the Open of the node with this process table. The kernel reports from the return of Open on.
func OpenNamespace(proc string) Open {
	return func(path string, known observe.Options) (Watch, error) {
		known.Local = addresses(proc)
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
