package node

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ways are the kinds of namespaces to try, the best first.
func (c *Command) ways() []way {
	plain := syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !c.Init {
		return []way{{&plain, NoInit}}
	}
	if c.imitate {
		return []way{{&plain, Imitated}}
	}
	asRoot, asUser := plain, plain
	asRoot.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC
	asUser.Cloneflags = asRoot.Cloneflags | syscall.CLONE_NEWUSER
	asUser.UidMappings, asUser.GidMappings = same(os.Geteuid(), "uid_map"), same(os.Getegid(), "gid_map")
	asUser.GidMappingsEnableSetgroups = os.Geteuid() == 0
	asUser.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to mount /proc; become gives it up
	return []way{{&asRoot, Namespace}, {&asUser, Namespace}, {&plain, Imitated}}
}

// same maps the users or groups that this process may use to themselves: all of root's, so that a server may change its
// user, and otherwise the one.
func same(own int, file string) (all []syscall.SysProcIDMap) {
	text, err := os.ReadFile("/proc/self/" + file)
	if own != 0 || err != nil {
		return []syscall.SysProcIDMap{{ContainerID: own, HostID: own, Size: 1}}
	}
	for line := range strings.Lines(string(text)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err == nil {
			all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
		}
	}
	return all
}

// awaitExit returns when the child pid has ended, before it is reaped: until then its number and its group's are not
// reused.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
