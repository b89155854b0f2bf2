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
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine, and with it the other namespace
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter the network namespace %s: %w", namespace.Name(), err)
			return
		}
		k, err = openHere(buffer)
	}()
	<-done
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
