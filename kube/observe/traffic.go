package observe

import (
	"errors"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// Watch is the view into a pod's network namespace: *observe.Watch, or a fake in tests.
type Watch interface {
	Reacted(since time.Time) time.Time
	Begin(at time.Time, by string) error
	End(at time.Time, exit observe.Exit) observe.Termination
	Close() error
}

// Open opens the network namespace behind a path such as /proc/PID/ns/net, of a pod with this proxy.
type Open func(path, proxy string) (Watch, error)

// OpenNamespace returns the Open of the node with this process table. The kernel reports from the return of Open on.
func OpenNamespace(proc string) Open {
	return func(path, proxy string) (Watch, error) {
		options := observe.Options{IgnorePorts: carrier.StatusPorts(proxy), Local: addresses(proc)}
		options.ProxyPorts, options.Attempts = carrier.ProxyPorts(proxy)
		w, err := observe.Open(path, options)
		if err != nil {
			return nil, err
		}
		if err := w.Arm(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
		return w, nil
	}
}
