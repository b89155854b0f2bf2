package observe

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// kernel is what a watch reads, of one network namespace.
type kernel struct {
	table    *sockdiag.Table
	reports  *sockdiag.Watch
	counters counters
}

// openKernel opens everything in the namespace; nil is the process's own.
func openKernel(namespace *os.File, buffer int) (k *kernel, err error) {
	err = in(namespace, func() (err error) {
		k, err = openHere(buffer)
		return err
	})
	if err != nil && k != nil {
		_ = k.close()
	}
	return k, err
}

// in runs f in a network namespace; nil is the process's own.
func in(namespace *os.File, f func() error) error {
	if namespace == nil {
		return f()
	}
	return Within(int(namespace.Fd()), f)
}

// Within runs f in another network namespace: of a descriptor of /proc/PID/ns/net, or of a process (pidfd, since Linux
// 5.8). Sockets that f opens stay there; goroutines that it starts are not there.
func Within(namespace int, f func() error) error {
	done := make(chan error)
	go func() { done <- within(namespace, f) }()
	return <-done
}

// within enters the namespace and comes back. A thread that cannot come back stays locked and ends with the goroutine;
// the main thread could not end, and /proc/self would show its namespace.
func within(namespace int, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the own network namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave the network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

func openHere(buffer int) (k *kernel, err error) {
	k = new(kernel)
	if k.counters, err = openCounters(); err != nil {
		return nil, fmt.Errorf("open the network namespace's counters: %w", err)
	}
	if k.table, err = sockdiag.OpenTable(); err != nil {
		k.counters.close()
		return nil, err
	}
	if k.reports, err = sockdiag.WatchAll(buffer, func() { notify(allStandby.now) }); err != nil {
		_ = k.table.Close()
		k.counters.close()
		return nil, err
	}
	return k, nil
}

func (k *kernel) close() error {
	k.counters.close()
	return errors.Join(k.reports.Close(), k.table.Close())
}
