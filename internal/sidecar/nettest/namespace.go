package nettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is one end of the wire.
type Namespace struct {
	Name string
	IPv4 netip.Addr // of Interface
	IPv6 netip.Addr

	prefixes []netip.Prefix
	file     *os.File
	owner    *owner
}

// owner is the user that sockets belong to in the eyes of netfilter.
type owner struct{ uid, gid int }

// As is the same namespace, in which everything is done as a user and a group.
func (n *Namespace) As(uid, gid int) *Namespace {
	as := *n
	as.owner = &owner{uid, gid}
	return &as
}

// Do runs f on a thread that is in the namespace. Sockets that f opens stay there, even if others use them later;
// goroutines that f starts are not there.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.handle()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the namespace of the %s: %w", n.Name, err)
		}
		if n.owner == nil {
			return f()
		}
		// A socket's owner is the thread's user for the file system, the one identity that Linux lets a single thread
		// change for a moment.
		defer func() {
			_ = unix.Setfsgid(os.Getegid())
			_ = unix.Setfsuid(os.Geteuid())
		}()
		if err := errors.Join(unix.Setfsgid(n.owner.gid), unix.Setfsuid(n.owner.uid)); err != nil {
			return fmt.Errorf("become user %d, group %d: %w", n.owner.uid, n.owner.gid, err)
		}
		return f()
	})
}

// Dial connects to host:port from within the namespace. Hosts are addresses: names are not resolved. It fits
// http.Transport's DialContext.
func (n *Namespace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.DialFrom(ctx, netip.Addr{}, network, address)
}

// DialFrom is Dial from a source address.
func (n *Namespace) DialFrom(ctx context.Context, source netip.Addr, network, address string) (conn net.Conn,
	err error) {
	var d net.Dialer
	if source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	err = n.Do(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// receiveTime bounds Receive.
const receiveTime = 5 * time.Second

// Receive connects to an address and returns what the server sends until it closes, or an error's text.
func (n *Namespace) Receive(t testing.TB, source netip.Addr, to string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), receiveTime)
	defer cancel()
	conn, err := n.DialFrom(ctx, source, "tcp", to)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(receiveTime))
	text, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Answer sends each connection a text, and closes it, until the test ends.
func (n *Namespace) Answer(t testing.TB, port int, text func(net.Conn) string) {
	t.Helper()
	ln := n.Listen(t, "tcp", fmt.Sprintf(":%d", port))
	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, text(conn))
			_ = conn.Close()
		}
	}()
}

// Listen listens in the namespace until the test ends.
func (n *Namespace) Listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	var ln net.Listener
	err := n.Do(func() (err error) {
		ln, err = net.Listen(network, address)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// Start starts a command in the namespace, as the user of As if there is one. It is the caller's to wait for.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if n.owner != nil {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(n.owner.uid), Gid: uint32(n.owner.gid)}
	}
	// The credentials are the child's business alone.
	plain := *n
	plain.owner = nil
	return plain.Do(cmd.Start)
}

// AddAddress gives the wire's end one more address.
func (n *Namespace) AddAddress(t testing.TB, prefix string) netip.Addr {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	n.change(t, func(handle *netlink.Handle) error { return addAddress(handle, Interface, p) })
	return p.Addr()
}

// RemoveAddress takes an address from one of the namespace's interfaces.
func (n *Namespace) RemoveAddress(t testing.TB, device, prefix string) {
	t.Helper()
	n.change(t, func(handle *netlink.Handle) error {
		address, err := netlink.ParseAddr(prefix)
		if err != nil {
			return err
		}
		link, err := handle.LinkByName(device)
		if err == nil {
			err = handle.AddrDel(link, address)
		}
		if err != nil {
			return fmt.Errorf("remove %s from %s: %w", prefix, device, err)
		}
		return nil
	})
}

// change changes the namespace's interfaces.
func (n *Namespace) change(t testing.TB, by func(*netlink.Handle) error) {
	t.Helper()
	handle, err := netlink.NewHandleAt(n.handle())
	if err == nil {
		defer handle.Close()
		err = by(handle)
	}
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
}

// TCP4 is a port at the IPv4 address, as Dial takes it; TCP6 at the IPv6 address.
func (n *Namespace) TCP4(port uint16) string { return netip.AddrPortFrom(n.IPv4, port).String() }
func (n *Namespace) TCP6(port uint16) string { return netip.AddrPortFrom(n.IPv6, port).String() }

// Path names the namespace for tools (nsenter --net=PATH) as long as the test runs.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

func (n *Namespace) handle() netns.NsHandle { return netns.NsHandle(n.file.Fd()) }

// Close releases the namespace before the end of the test. It ends when no process, socket or descriptor holds it.
func (n *Namespace) Close() { _ = n.file.Close() }
