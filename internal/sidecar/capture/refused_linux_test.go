package capture

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// powerless runs f on a thread that may not change the network: capabilities are a thread's own, and what is permitted
// can still be undone.
func powerless(f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		return err
	}
	some := all
	some[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &some[0]); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, unix.Capset(&header, &all[0]))
}

// A slip on a machine must not cut it off. The thread could do no harm if it went wrong.
func TestMachineIsRefused(t *testing.T) {
	n := nettest.New(t)
	must.Do(t, n.Pod.Do(func() error {
		if onMachine() {
			t.Error("a pod passes for the machine")
		}
		return nil
	}))
	if !onMachine() {
		t.Log("these tests run in a container: there is no machine to refuse")
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := powerless(func() error { return Install(resolve(t, Input{})) })
	if !errors.Is(err, errMachine) || !strings.Contains(err.Error(), "--whole-machine") {
		t.Errorf("install on the machine: %v", err)
	}
	c := resolve(t, Input{})
	c.WholeMachine = true
	if err := powerless(func() error { return Install(c) }); !errors.Is(err, syscall.EPERM) {
		t.Errorf("install on the machine, as the flag allows: %v", err)
	}
}

func TestRefused(t *testing.T) {
	n := nettest.New(t)
	without := func(f func() error) error { return n.Pod.Do(func() error { return powerless(f) }) }
	c := resolve(t, Input{})
	err := without(func() error { return Install(c) })
	if !errors.Is(err, syscall.EPERM) || !strings.HasPrefix(err.Error(), "install the capture: ") || !strings.Contains(err.Error(), "needs CAP_NET_ADMIN") {
		t.Errorf("install: %v", err)
	}
	if err := without(Remove); !errors.Is(err, syscall.EPERM) || !strings.HasPrefix(err.Error(), "remove the capture: ") {
		t.Errorf("remove: %v", err)
	}

	// One rule that the kernel refuses, the last: nothing is there afterwards.
	refused := c.rules(ipv4)
	last := &refused.chains[2]
	last.rules = append(last.rules, rule{nil, verdict{jump: "nowhere"}})
	err = n.Pod.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		if err := refused.add(conn); err != nil {
			return err
		}
		err = explain(conn.Flush())
		if tables, listErr := conn.ListTables(); listErr != nil || len(tables) > 0 {
			t.Errorf("tables after a refusal: %v, %v", tables, listErr)
		}
		return err
	})
	if !errors.Is(err, syscall.ENOENT) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "CONFIG_NFT_REDIR") {
		t.Errorf("a rule that the kernel does not know: %v", err)
	}
}
