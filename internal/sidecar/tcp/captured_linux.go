package tcp

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Sources4 and Sources6 are the addresses from which captured connections reach the app, of ranges that are reserved
// for documentation. lastcall capture makes them local (a route), but addresses of no interface: no rule of an app for
// its own machine matches them, neither one for loopback nor one for all addresses of its interfaces. There are many,
// so that ports do not run out: each connection keeps one for a minute after its end (TIME_WAIT).
var (
	Sources4 = netip.MustParsePrefix("198.51.100.0/24")
	Sources6 = netip.MustParsePrefix("2001:db8:6c63::/120")
)

// DialCaptured connects to the app that a client's captured connection was meant for, at the address that the client
// used and never at loopback instead: a server on loopback alone (a debug port, an admin API) must not become reachable
// from the network. Istio does so since 1.10.
//
// The source is one of Sources4 or Sources6, the same for all connections of a client, unless its ports run out. Behind
// rules that do not have them it is Istio's 127.0.0.6, and for IPv6 the pod's own address.
func DialCaptured(ctx context.Context, to netip.AddrPort, client netip.Addr, wait Patience) (app *Socket, err error) {
	sources := sourcesFor(to.Addr())
	if !sources.IsValid() {
		return dial(ctx, to, netip.Addr{}, wait)
	}
	if sources.IsSingleIP() {
		return dial(ctx, to, sources.Addr(), wait)
	}
	for range maxSources {
		turn := sourceTurn.Load()
		app, err = dial(ctx, to, sourceOf(sources, client, turn), wait)
		if errors.Is(err, syscall.EINVAL) { // it may bind to any address, but has no route from it
			return dial(ctx, to, netip.Addr{}, wait)
		}
		if !errors.Is(err, syscall.EADDRNOTAVAIL) {
			break
		}
		sourceTurn.CompareAndSwap(turn, turn+1)
	}
	return app, err
}

const maxSources = 4

// sourceTurn rises when the ports of a client's source have run out: all clients change to their next one.
var sourceTurn atomic.Uint32

// sourceOf chooses an address: not the range's first and last one, which IPv4 reserves.
func sourceOf(sources netip.Prefix, client netip.Addr, turn uint32) netip.Addr {
	hash := fnv.New32a()
	_, _ = hash.Write(client.AsSlice())
	at := sources.Addr().AsSlice()
	at[len(at)-1] = byte(1 + (hash.Sum32()+turn)%254)
	source, _ := netip.AddrFromSlice(at)
	return source
}

// sourced are the sources for connections to an address of the pod.
type sourced struct{ to, sources netip.Prefix }

// lastSourced is the latest result of sourcesFor, for each family: a pod has one address of each, as a rule.
var lastSourced [2]atomic.Pointer[sourced]

// sourcesFor are the sources for connections to an address. For one that is not the pod's (it forwards for others)
// there are none: nothing would answer to them.
func sourcesFor(to netip.Addr) netip.Prefix {
	last := &lastSourced[to.BitLen()/128]
	if known := last.Load(); known != nil && known.to.Addr() == to {
		return known.sources
	}
	found := &sourced{to: netip.PrefixFrom(to, to.BitLen())}
	switch {
	case !isLocal(to):
	case to.Is4() && isLocal(Sources4.Addr().Next()):
		found.sources = Sources4
	case to.Is4():
		found.sources = netip.PrefixFrom(istio.Source4, 32)
	case hasRoute6(Sources6):
		found.sources = Sources6
	}
	last.Store(found)
	return found.sources
}

// isLocal reports whether a socket may have an address.
func isLocal(at netip.Addr) bool {
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: at.As16()})
	if at.Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: at.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Bind(fd, to) == nil
}

// hasRoute6 reports whether the kernel has a route to exactly these addresses by loopback. IPv6 does not let a socket
// have an address by a route alone, so that isLocal cannot see it.
func hasRoute6(to netip.Prefix) bool {
	f, err := os.Open("/proc/thread-self/net/ipv6_route")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	want := hex.EncodeToString(to.Addr().AsSlice()) + " " + hex.EncodeToString([]byte{byte(to.Bits())}) + " "
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, want) && strings.HasSuffix(strings.TrimSpace(line), " lo") {
			return true
		}
	}
	return false
}

// bindSource gives a socket a source address. The kernel chooses the port when it connects.
func bindSource(fd int, source netip.Addr) error {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	to := unix.Sockaddr(&unix.SockaddrInet6{Addr: source.As16()})
	if source.Is4() {
		to = &unix.SockaddrInet4{Addr: source.As4()}
	} else {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
	}
	return os.NewSyscallError("bind", unix.Bind(fd, to))
}
