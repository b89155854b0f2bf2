package observe

import (
	"net/netip"
	"time"
)

// Protocol is the protocol of a port's clients.
type Protocol int

// The protocols. The kernel counts bytes and segments, so that only requests of plain HTTP/1.1, one at a time, show
// whether they have been answered.
const (
	Unspecified Protocol = iota // HTTP/1.1, unless a connection shows otherwise
	HTTP1
	Opaque // any other, such as TLS, HTTP/2, gRPC or a database's
)

// Probe is one of the kubelet's probes that connect to the pod. It continues while the pod terminates if it is the
// readiness probe.
type Probe struct {
	Port   uint16
	Period time.Duration
}

// Refusal is a refused connection.
type Refusal struct {
	To    netip.AddrPort
	After time.Time // its socket was destroyed after this,
	At    time.Time // and until this, when the report of it was read
}

// Options select what counts.
type Options struct {
	// Ports are the app's ports; none: every port that has a listener during the watch.
	Ports []uint16
	// IgnorePorts are listening ports that do not count: a sidecar's status and admin ports. In Istio's ambient mesh,
	// ztunnel's 15001, 15006 and 15008 are among them, because the app's own sockets show the clients.
	IgnorePorts []uint16
	// ProxyPorts are the listening ports of a sidecar that carries the pod's traffic; none: the pod has none.
	// What the pod itself connects to its other ports is then the sidecar's, for its clients: a request that the app
	// loses there is lost, even though the sidecar answers it with an error. At these ports only clients from outside
	// count, not the app's own connections to others.
	ProxyPorts []uint16
	// Attempts is how often the sidecar connects for one request if the app refuses; 0 is 1.
	Attempts int
	// Process selects the listeners of a process and its descendants, on a machine that they share with others; 0: of
	// all. Their descriptors must be readable. Connections from the namespace itself then count, since clients may use
	// them; otherwise they are a sidecar's to its app, whose clients count at the sidecar. Refused connections then may
	// concern any process, and are in ForeignResets.
	Process int
	// LooksEarly has the watch look at the table before Begin, too, ten times a second, or once if that would take more
	// than 0.2 % of a core: an app that ends at the moment of Begin is then judged by more than the kernel's reports.
	LooksEarly bool
	// Local reports whether an address is the machine's own, from which the kubelet's probes come; nil: none is.
	Local func(netip.Addr) bool `json:"-"`
	// Probes are the kubelet's.
	Probes []Probe
	// Refusals returns the connections of the machine's own processes, the kubelet among them, that were refused after
	// a moment, until another one; known is false if some are missing. nil: unknown.
	Refusals func(after time.Time) (all []Refusal, until time.Time, known bool) `json:"-"`
	// Protocols are those of the ports' clients.
	Protocols map[uint16]Protocol

	buffer int // of the kernel's reports, bytes; 0: the default
}
