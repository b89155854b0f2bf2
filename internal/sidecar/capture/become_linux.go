package capture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Become installs c, as Install does, and turns this process into a program without any right, for good: no capability
// in any set, and no way to gain one (no_new_privs). NET_ADMIN and SETPCAP must be permitted; file capabilities without
// the effective flag are enough. It returns only with an error.
//
// The thread that has raised the rights gives them up again before it becomes the program, and the kernel ends the
// others.
func Become(c Config, program string, argv []string) error {
	runtime.LockOSThread()
	if err := raise(); err != nil {
		return err
	}
	if err := Install(c); err != nil {
		return err
	}
	if err := giveUp(); err != nil {
		return err
	}
	return fmt.Errorf("become %s: %w", program, syscall.Exec(program, argv, os.Environ()))
}

// lastCapability is the highest that a kernel can have: sets are 64 bits.
const lastCapability = 63

// capabilities are the sets of a thread, of which the first element has the lower 32 bits.
type capabilities [2]unix.CapUserData

func version() *unix.CapUserHeader {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

// raise makes the permitted capabilities of the calling thread effective.
func raise() error {
	var c capabilities
	if err := unix.Capget(version(), &c[0]); err != nil {
		return fmt.Errorf("read the thread's capabilities: %w", err)
	}
	c[0].Effective, c[1].Effective = c[0].Permitted, c[1].Permitted
	if err := unix.Capset(version(), &c[0]); err != nil {
		return fmt.Errorf("raise the thread's capabilities: %w", err)
	}
	return nil
}

// giveUp gives up every right of the calling thread, also those that a program could gain as which it continues.
func giveUp() error {
	for c := range uintptr(lastCapability + 1) {
		switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); {
		case errors.Is(err, unix.EINVAL): // the kernel has no such capability
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("empty the bounding set: %w: this needs CAP_SETPCAP, too (in Kubernetes securityContext.capabilities.add: [NET_ADMIN, SETPCAP])", err)
		case err != nil:
			return fmt.Errorf("empty the bounding set: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	var none capabilities // the ambient set loses the rights that the permitted one loses
	if err := unix.Capset(version(), &none[0]); err != nil {
		return fmt.Errorf("give up the thread's capabilities: %w", err)
	}
	return nil
}

// GiveUpUnused gives up the rights of the file's capabilities, in a process that does not raise them: a hook in the
// sidecar's container. A user's own rights stay.
func GiveUpUnused() {
	var c, none capabilities
	if err := unix.Capget(version(), &c[0]); err != nil || c[0].Permitted == 0 || c[0].Effective != 0 {
		return
	}
	// All threads; programs with cgo, which cannot do this, are only in tests.
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(version())),
		uintptr(unsafe.Pointer(&none)), 0)
}
