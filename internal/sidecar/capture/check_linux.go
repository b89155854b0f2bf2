package capture

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/google/nftables"
)

// The rules redirect the proxy's own connections to loopback port checkFrom to checkTo: a process without any
// capability, which may not read the rules, thus sees whether they are there. Both are in the range that Istio
// reserves.
const checkFrom, checkTo = 15002, 15003

// checkTime limits the check of one family. Its connections stay on loopback.
const checkTime = time.Second

// errMissing is the result of a Check without rules.
var errMissing = errors.New("the rules of lastcall capture are not in this network namespace")

// Check reports an error unless the rules of Install are in force in the network namespace of the process, in both
// families. It needs no capability, but one of the users in Config.UIDs. It cannot see which rules they are: a
// transaction installs all or none.
func Check() error {
	for _, f := range families() {
		if err := f.check(); err != nil {
			return fmt.Errorf("check the capture of %v: %w", f, err)
		}
	}
	return nil
}

func (f family) check() error {
	at := loopback[f].Addr()
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, checkTo)))
	if f == ipv6 && errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil // no IPv6 on the pod's interfaces
	}
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	sent, err := net.DialTimeout("tcp", netip.AddrPortFrom(at, checkFrom).String(), checkTime)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errMissing
	}
	if err != nil {
		return err
	}
	defer func() { _ = sent.Close() }()
	_ = ln.SetDeadline(time.Now().Add(checkTime))
	for {
		got, err := ln.Accept()
		if err != nil {
			return errMissing // another process has accepted it at checkFrom
		}
		_ = got.Close()
		if got.RemoteAddr().String() == sent.LocalAddr().String() {
			return nil
		}
	}
}

// IsInstalled reports whether the network namespace of the calling thread has the tables of Install. It needs
// CAP_NET_ADMIN.
func IsInstalled() (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, explain(err)
	}
	tables, err := conn.ListTables()
	found := 0
	for _, t := range tables {
		if t.Name == Name {
			found++
		}
	}
	return found == len(families()), explain(err)
}

// errMachine prevents that a mistake cuts a whole machine off.
var errMachine = errors.New("this is not a pod but the machine's own network namespace: all of its traffic would be captured; if intended, set --whole-machine")

// onMachine reports whether the calling thread is in the kernel's initial namespace. Process 2, whose children are the
// kernel's threads, never leaves it; a container with processes of its own does not see it.
func onMachine() bool {
	name, err := os.ReadFile("/proc/2/comm")
	if err != nil || !bytes.Equal(name, []byte("kthreadd\n")) {
		return false
	}
	first, err := os.Stat("/proc/2/ns/net")
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/thread-self/ns/net")
	return err == nil && os.SameFile(first, ours)
}
