package observe

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
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
	node, err := watchRefusals(ctx, filepath.Join(process, "ns", "net")) // else only their number shows the probes
	return func(path string, known observe.Options) (Watch, error) {
		if _, err := os.Stat(process); err != nil && filepath.Base(process) != "1" { // the kubelet has restarted
			process = nodeProcess(proc)
		}
		if known.Local = addresses(filepath.Join(process, "ns", "net")); err == nil {
			known.Refusals = node.since
		}
		return observe.Open(path, known)
	}
}

// ambientProbes are where the kubelet's probes come from in Istio's ambient mesh (istio.io, "Ambient and health
// probes").
var ambientProbes = []netip.Addr{
	netip.MustParseAddr("169.254.7.127"), netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff"),
}

// nodeProcess is the folder of a process in the node's network namespace: the kubelet, from which the probes come, or
// the first one.
func nodeProcess(proc string) string {
	names, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	for _, name := range names {
		text, _ := os.ReadFile(name)
		command := strings.SplitN(string(text), "\x00", 3) // "kubelet", or "hyperkube kubelet"
		isKubelet := func(word string) bool { return filepath.Base(word) == "kubelet" }
		if slices.ContainsFunc(command[:min(len(command), 2)], isKubelet) {
			return filepath.Dir(name)
		}
	}
	return filepath.Join(proc, "1")
}

// addresses returns whether an address is one of the node's own, from which the kubelet's probes come. It reads those
// of a network namespace. If it cannot, every address may be: no arrival is then a client's for certain.
func addresses(namespace string) func(netip.Addr) bool {
	var all []net.Addr
	err := sockdiag.In(namespace, func() (err error) {
		all, err = net.InterfaceAddrs()
		return err
	})
	if err != nil {
		return func(netip.Addr) bool { return true }
	}
	own := map[netip.Addr]bool{}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLinkLocalUnicast() { // each pod's link has one of those
			own[p.Addr()] = true
		}
	}
	return func(a netip.Addr) bool { return own[a] || slices.Contains(ambientProbes, a) }
}
