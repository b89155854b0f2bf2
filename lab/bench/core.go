package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// onCore runs f on a thread that is bound to the core. What f starts is bound to it from its first instruction on: an
// affinity is inherited by fork and kept by exec.
func onCore(core int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("ask for the cores: %w", err)
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("bind to core %d: %w", core, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	return f()
}

// bound is set in the environment of a bench that has bound itself.
const bound = "LASTCALL_BENCH_BOUND"

// bindSelf starts this program again on the core of the load: its own clients then leave the proxies' core alone, and
// its Go runtime counts one core.
func bindSelf() error {
	if os.Getenv(bound) != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return onCore(loadCore, func() error {
		err := syscall.Exec(self, os.Args, append(os.Environ(), bound+"=1"))
		return fmt.Errorf("start again on core %d: %w", loadCore, err)
	})
}

// raiseFileLimit allows this process and those that it starts as many descriptors as possible, and reports whether they
// are enough for so many connections on both sides of a proxy.
func raiseFileLimit(connections int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask for the limit of open files: %w", err)
	}
	need := uint64(2*connections + 1000)
	if limit.Max < need {
		// Only the privileged may; whether it worked is seen below.
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: need})
		_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	if limit.Max < need {
		return fmt.Errorf("%d connections through a proxy need %d open files, `ulimit -Hn` is %d: --held %d is possible",
			connections, need, limit.Max, max(0, int(limit.Max)-1000)/2)
	}
	// Once it is set by us, Go gives it to the processes that are started too.
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit.Max, Max: limit.Max})
}
