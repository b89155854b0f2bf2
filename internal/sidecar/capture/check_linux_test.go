package capture

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// An agent without any capability sees whether the rules are there.
func TestCheck(t *testing.T) {
	n := nettest.New(t)
	check := func() error {
		return n.Pod.As(1337, 1337).Do(func() error { return powerless(Check) })
	}
	installed := func(want bool) {
		t.Helper()
		if err := n.Pod.Do(func() error {
			got, err := IsInstalled()
			if got != want {
				t.Errorf("IsInstalled is %v, want %v", got, want)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if err := check(); !errors.Is(err, errMissing) {
		t.Errorf("without rules: %v", err)
	}
	installed(false)
	for _, flags := range []map[string]string{nil, {"exclude-interfaces": "lo", "include-inbound-ports": "", "include-outbound-ranges": ""}} {
		c := resolve(t, Input{Flags: flags})
		if err := n.Pod.Do(func() error { return Install(c) }); err != nil {
			t.Fatal(err)
		}
		if err := check(); err != nil {
			t.Errorf("with the rules of %v: %v", flags, err)
		}
		installed(true)
	}
	// The app's connection to the port is its own affair.
	err := n.Pod.As(1000, 1000).Do(Check)
	if !errors.Is(err, errMissing) {
		t.Errorf("as another user: %v", err)
	}
	if err := n.Pod.Do(Remove); err != nil {
		t.Fatal(err)
	}
	// A program that listens on the port does not pass for the rules.
	other := n.Pod.Listen(t, "tcp", "127.0.0.1:15002")
	if err := check(); !errors.Is(err, errMissing) {
		t.Errorf("without rules, with another's listener: %v", err)
	}
	_ = other.Close()
	n.Pod.Listen(t, "tcp", "127.0.0.1:15003")
	if err := check(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("with another's listener on the target: %v", err)
	}
}

// Where the pod has no IPv6 there is nothing to check of it.
func TestCheckWithoutIPv6(t *testing.T) {
	n := nettest.New(t)
	n.Pod.RemoveAddress(t, "lo", "::1/128")
	err := n.Pod.Do(func() error { return Install(resolve(t, Input{})) })
	if err != nil {
		t.Fatal(err)
	}
	err = n.Pod.As(1337, 1337).Do(func() error {
		if _, err := net.Listen("tcp", "[::1]:0"); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Fatalf("the namespace has ::1: %v", err)
		}
		return Check()
	})
	if err != nil {
		t.Error(err)
	}
}
