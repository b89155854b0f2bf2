package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Pod is a pod whose termination is followed from within, and a Watch of it that has started.
type Pod struct {
	Watch   *Watch
	Signals <-chan os.Signal // SIGTERM and SIGINT of this process

	Limit time.Duration           // for the beginning; 0: none
	Early time.Duration           // after it, Print gets what is lost so far if requests are in flight; 0: never
	Print func(Termination) error // a preliminary result
}

// Errors of Follow without a termination.
var (
	ErrInterrupted   = errors.New("interrupted before a termination")
	ErrNoTermination = errors.New("no termination")
)

// followInterval is how often Follow looks for the end.
const followInterval = 50 * time.Millisecond

// Follow returns what the termination has lost once every socket of the pod has gone after its SIGTERM, or at SIGINT.
func (p Pod) Follow(ctx context.Context) (Termination, error) {
	look := time.NewTicker(followInterval)
	defer look.Stop()
	limit, early := after(p.Limit), (<-chan time.Time)(nil)
	begun := false
	for {
		select {
		case s := <-p.Signals:
			switch {
			case s != syscall.SIGTERM && begun:
				return p.Watch.End(time.Now(), Exit{}), nil
			case s != syscall.SIGTERM:
				return Termination{}, ErrInterrupted
			case !begun:
				_ = p.Watch.Begin(time.Now(), "SIGTERM") // it has started
				begun, limit, early = true, nil, after(p.Early)
			}
		case <-early:
			if t := p.Watch.Peek(); t.Maybe.Unfinished > 0 {
				if err := p.Print(t); err != nil {
					return Termination{}, err
				}
			}
		case <-limit:
			return Termination{}, fmt.Errorf("%w in %v", ErrNoTermination, p.Limit)
		case <-ctx.Done():
			return Termination{}, ctx.Err()
		case <-look.C:
			if begun && p.Watch.Gone() {
				return p.Watch.End(time.Now(), Exit{}), nil
			}
		}
	}
}

// after is a timer's channel, or nil when d is not positive.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// processesMost bounds the descendants of a process that are considered.
const processesMost = 1 << 12

// family is a process and its descendants. It needs CONFIG_PROC_CHILDREN, which Kubernetes' nodes have (CRIU).
func family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all) && len(all) < processesMost; i++ {
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
