package observe

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// kernel is what a watch reads, of one network namespace.
type kernel struct {
	table    *sockdiag.Table
	reports  *sockdiag.Watch
	counters counters
}

// openKernel opens everything in the namespace; nil is the process's own.
func openKernel(namespace *os.File, buffer int) (k *kernel, err error) {
	if namespace == nil {
		return openHere(buffer)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k, err = openThere(namespace, buffer)
	}()
	<-done
	return k, err
}

// openThere enters the namespace and comes back. A thread that cannot come back stays locked and ends with the
// goroutine; the main thread could not end, and /proc/self would show its namespace.
func openThere(namespace *os.File, buffer int) (*kernel, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open the own network namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter the network namespace %s: %w", namespace.Name(), err)
	}
	k, err := openHere(buffer)
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		if err == nil {
			_ = k.close()
		}
		return nil, fmt.Errorf("leave the network namespace %s: %w", namespace.Name(), back)
	}
	runtime.UnlockOSThread()
	return k, err
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
	if k.reports, err = sockdiag.WatchAll(buffer); err != nil {
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
