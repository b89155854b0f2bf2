package observe

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// rights are the capabilities of an observer, and why it needs them.
var rights = []struct {
	number    int
	name, why string
}{
	{unix.CAP_SYS_PTRACE, "SYS_PTRACE", "opens the network namespace of another user's process"},
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN", "enters that network namespace"},
}

// CheckRights returns an error that names what this process lacks for observing the pods of a node.
func CheckRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read the own capabilities: %w", err)
	}
	return checkRights(uint64(sets[1].Effective)<<32|uint64(sets[0].Effective), os.Getpid())
}

func checkRights(effective uint64, pid int) error {
	var errs []error
	if pid == 1 { // of a PID namespace of its own
		errs = append(errs, errors.New("the node's processes are not visible: hostPID is missing"))
	}
	for _, r := range rights {
		if effective&(1<<r.number) == 0 {
			errs = append(errs, fmt.Errorf("the capability %s is missing: it %s", r.name, r.why))
		}
	}
	return errors.Join(errs...)
}
