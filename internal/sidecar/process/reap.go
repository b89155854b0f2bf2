package process

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reap reaps the orphans that a PID 1 inherits, until ctx ends, so that they do not accumulate as zombies. It does
// nothing in any other process.
func Reap(ctx context.Context) {
	if os.Getpid() != 1 {
		return
	}
	reap(ctx)
}

func reap(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		for reapOne() {
		}
		select {
		case <-died:
		case <-owned.waited:
		case <-ctx.Done():
			return
		}
	}
}

// pidOf reads si_pid, which x/sys does not export: after three 32-bit fields the union begins at the next
// pointer-aligned offset (asm-generic/siginfo.h).
func pidOf(info *unix.Siginfo) int {
	const offset = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) / unsafe.Sizeof(uintptr(0)) * unsafe.Sizeof(uintptr(0))
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}

// reapOne reaps one dead child that no goroutine waits for. It returns false when there is none at the moment. The
// kernel shows one dead child at a time: if that has a waiter, the next ones are visible after the waiter has reaped
// it.
func reapOne() bool {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return false
	}
	pid := pidOf(&info)
	if pid == 0 {
		return false
	}
	owned.Lock()
	defer owned.Unlock()
	if owned.pids[pid] {
		return false
	}
	_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil
}
