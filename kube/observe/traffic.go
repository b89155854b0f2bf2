package observe

import (
	"errors"
	"time"

	"github.com/lastcall-dev/lastcall/internal/observe"
	"github.com/lastcall-dev/lastcall/kube/inject"
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
		w, err := observe.Open(path, observe.Options{IgnorePorts: ignored[inject.MeshOfCarrier(proxy)], Local: addresses(proc)})
		if err != nil {
			return nil, err
		}
		if err := w.Arm(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
		return w, nil
	}
}

// ignored are the listening ports of proxies that serve kubelet, Prometheus and people, not clients.
var ignored = map[string][]uint16{
	// istio.io, "Ports used by Istio". 15021 and 15020 are health and metrics, 15090 Envoy's metrics, 15000 and 15004 its
	// admin API, 15053 DNS. The clients' connections end at 15006 and 15001 after the redirect and count.
	"istio": {15000, 15004, 15020, 15021, 15053, 15090},
	// ztunnel listens in the pod's namespace, and connects to the app from there with the client's address: the app's own
	// sockets show the clients.
	"istio-ambient":    {15001, 15006, 15008, 15053, 15080, 15088},
	inject.CarrierOurs: {15000, 15020, 15021},
	"linkerd":          {4190, 4191}, // its admin ports
}
