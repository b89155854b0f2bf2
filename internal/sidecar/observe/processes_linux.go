package observe

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// maxProcesses bounds the descendants of a process that are considered.
const maxProcesses = 1 << 12

// family is a process and its descendants. It needs CONFIG_PROC_CHILDREN, which Kubernetes' nodes have (CRIU).
func family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all) && len(all) < maxProcesses; i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, list := range lists {
			b, _ := os.ReadFile(list) // it may have exited
			for _, field := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(field); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all
}

// inodes are those of the sockets of a process and its descendants.
func inodes(pid int) map[uint32]bool {
	out := make(map[uint32]bool)
	for _, member := range family(pid) {
		_ = sockdiag.AddInodes(out, "/proc/"+strconv.Itoa(member)) // it may have exited
	}
	return out
}

// AwaitExit returns when the process of a descriptor without blocking (PIDFD_NONBLOCK) has exited, or with ctx's error.
// It holds no thread.
func AwaitExit(ctx context.Context, pidfd *os.File) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err != unix.EINTR && n != 0
	})
	return cmp.Or(ctx.Err(), err)
}
