package node

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when pid, a child, has ended but is not reaped yet: until
// it is, its number and its group's belong to nobody else.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
