// Package nettest gives tests a network of their own: a client and a pod, each in its own network namespace, joined by
// a pair of veth interfaces with IPv4 and IPv6 addresses. What is captured, listened on or cut there touches neither
// the machine nor another test.
//
//	net := nettest.New(t)
//	ln := net.Pod.Listen(t, "tcp", ":8080")
//	conn, err := net.Client.Dial(ctx, net.Pod.TCP4(8080))
//
// The namespaces have no names: they exist as long as a process or descriptor holds them, so that nothing remains even
// if a test is killed.
//
// Making namespaces needs root. Without it a test is skipped, or in CI fails, by the rules of internal/sidecar/peers.
package nettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/freeport"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// Net is two namespaces and the wire between them.
type Net struct {
	Client *Namespace
	Pod    *Namespace
}

// The interface on either end of the wire, as a container runtime calls it.
const Interface = "eth0"

// New makes a network that the test removes when it ends. Each end is the other's default route, so addresses that
// AddAddress gives the client act as the outside world.
func New(t *testing.T) *Net {
	t.Helper()
	client, err := newNamespace("client", "10.77.0.1/24", "fd00:77::1/64")
	need(t, err)
	t.Cleanup(client.Close)
	pod, err := newNamespace("pod", "10.77.0.2/24", "fd00:77::2/64")
	need(t, err)
	t.Cleanup(pod.Close)
	n := &Net{Client: client, Pod: pod}
	if err := n.wire(); err != nil {
		t.Fatalf("join the network namespaces of client and pod: %v", err)
	}
	return n
}

// Neighbour is the second address of a namespace that Alone makes, for its clients.
var Neighbour = netip.MustParseAddr("10.77.0.1")

// Alone makes a namespace without a wire: a pod whose clients are in it, too, and connect from Neighbour (DialFrom). It
// costs a tenth of a network of New.
func Alone(t testing.TB) *Namespace {
	t.Helper()
	pod, err := newNamespace("pod", "10.77.0.2/24")
	need(t, err)
	t.Cleanup(pod.Close)
	pod.change(t, func(handle *netlink.Handle) error {
		lo, err := handle.LinkByName("lo")
		if err == nil {
			err = handle.LinkSetUp(lo)
		}
		for _, address := range []netip.Addr{pod.IPv4, Neighbour} {
			err = errors.Join(err, addAddress(handle, "lo", netip.PrefixFrom(address, 32)))
		}
		return err
	})
	return pod
}

// need ends the test when there can be no namespaces here.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL), peers.InCI():
		t.Fatalf("%v; in CI no test may be skipped", err)
	default:
		t.Skipf("%v (needs root: CAP_SYS_ADMIN and CAP_NET_ADMIN, and a kernel with network namespaces)", err)
	}
}

// wire lays the pair of interfaces and gives them their addresses.
func (n *Net) wire() error {
	pod, err := netlink.NewHandleAt(n.Pod.handle())
	if err != nil {
		return fmt.Errorf("open netlink in the pod: %w", err)
	}
	defer pod.Close()
	client, err := netlink.NewHandleAt(n.Client.handle())
	if err != nil {
		return fmt.Errorf("open netlink in the client: %w", err)
	}
	defer client.Close()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = Interface
	err = pod.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: Interface,
		PeerNamespace: netlink.NsFd(n.Client.handle())})
	if err != nil {
		return fmt.Errorf("add the veth pair: %w", err)
	}
	// All addresses before any route: a gateway must be on the link already.
	for _, end := range []struct {
		handle    *netlink.Handle
		namespace *Namespace
	}{{client, n.Client}, {pod, n.Pod}} {
		if err := end.namespace.up(end.handle); err != nil {
			return fmt.Errorf("%s: %w", end.namespace.Name, err)
		}
	}
	if err := defaultRoutes(pod, n.Client); err != nil {
		return fmt.Errorf("pod: %w", err)
	}
	if err := defaultRoutes(client, n.Pod); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// up brings lo and the wire's end up and gives the latter its addresses.
func (n *Namespace) up(handle *netlink.Handle) error {
	for _, name := range []string{"lo", Interface} {
		link, err := handle.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if err := handle.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	for _, prefix := range n.prefixes {
		if err := addAddress(handle, Interface, prefix); err != nil {
			return err
		}
	}
	return nil
}

// addAddress gives an interface an address. IPv6 would first check for a second whether it is in use (duplicate address
// detection).
func addAddress(handle *netlink.Handle, name string, prefix netip.Prefix) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP:   prefix.Addr().AsSlice(),
		Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
	}}
	if prefix.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	if err := handle.AddrAdd(link, address); err != nil {
		return fmt.Errorf("give %s the address %v: %w", name, prefix, err)
	}
	return nil
}

func defaultRoutes(handle *netlink.Handle, gateway *Namespace) error {
	link, err := handle.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	for _, via := range []netip.Addr{gateway.IPv4, gateway.IPv6} {
		if err := handle.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via.AsSlice()}); err != nil {
			return fmt.Errorf("route by default to %v: %w", via, err)
		}
	}
	return nil
}

// newNamespace makes a namespace in which nothing is up yet.
func newNamespace(name string, prefixes ...string) (*Namespace, error) {
	n := &Namespace{Name: name}
	for _, p := range prefixes {
		prefix := netip.MustParsePrefix(p)
		n.prefixes = append(n.prefixes, prefix)
		if prefix.Addr().Is4() {
			n.IPv4 = prefix.Addr()
		} else {
			n.IPv6 = prefix.Addr()
		}
	}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace for the %s: %w", name, err)
		}
		n.file, err = os.Open(threadNamespace)
		return err
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

const threadNamespace = "/proc/thread-self/ns/net"

// onThread runs f on a thread of its own and puts that thread back into the namespace from which it came. A thread that
// cannot be put back ends with its goroutine: Go destroys what is still locked then.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open(threadNamespace)
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = f()
		back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
		if back == nil {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, back)
	}()
	return <-done
}

// T has the methods of a test that Listen uses, also of one of package rapid.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Listen listens on a TCP address.
func Listen(t T, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// Each has serve take every connection of a listener, which it closes afterwards. The end of the test closes all.
func Each(t testing.TB, ln net.Listener, serve func(c net.Conn)) {
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer context.AfterFunc(t.Context(), func() { _ = c.Close() })()
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
}

// Serve serves HTTP/1.1, and HTTP/2 without TLS, until stop is called or the test ends.
func Serve(t testing.TB, ln net.Listener, h http.Handler) (stop func()) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: protocols}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(ln) }()
	stop = sync.OnceFunc(func() { _ = s.Close(); <-served })
	t.Cleanup(stop)
	return stop
}

// FreeAddress returns host, an IP address, with a port that is reserved until the end of the test, as the listening
// address of a program. It skips the test if the host is not available.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	port, release, err := freeport.Reserve(host)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(release)
	return net.JoinHostPort(host, fmt.Sprint(port))
}
