package sockdiag

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// alive are the states of a socket that a process uses: it listens, connects, or has a connection.
var alive = Of(Listen, synSent, Established, CloseWait)

// Others counts the TCP sockets of the network namespace that belong to other processes.
func (t *Table) Others() (int, error) {
	all, err := t.others(alive)
	return len(all), err
}

// Listeners are the listening TCP sockets of other processes in the network namespace.
func (t *Table) Listeners() ([]Socket, error) { return t.others(Of(Listen)) }

// others are the sockets with an inode that is not among our descriptors; inode 0: its process has closed it.
func (t *Table) others(states States) ([]Socket, error) {
	own := make(map[uint32]bool)
	if err := AddInodes(own, "/proc/self"); err != nil {
		return nil, err
	}
	return t.not(own, states)
}

// not are the sockets of a process whose inode is not one of these.
func (t *Table) not(own map[uint32]bool, states States) ([]Socket, error) {
	all, err := t.list(states, nil, nil)
	return slices.DeleteFunc(all, func(s Socket) bool { return s.Inode == 0 || own[s.Inode] }), err
}

// OfOtherContainers counts the sockets of the network namespace that belong to no process of this container: of this
// control group, since a pod may share its process namespace. It needs the user of the container's processes.
func (t *Table) OfOtherContainers() (int, error) {
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, fmt.Errorf("find this container's processes: %w", err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	own := make(map[uint32]bool)
	for _, process := range processes {
		if of, err := os.ReadFile(process + "/cgroup"); err != nil || !bytes.Equal(of, group) {
			continue // it has exited, or is another container's
		}
		if err := AddInodes(own, process); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	all, err := t.not(own, alive)
	return len(all), err
}

// Inodes are those of the sockets of processes.
func Inodes(pids []int) map[uint32]bool {
	out := make(map[uint32]bool)
	for _, pid := range pids {
		_ = AddInodes(out, "/proc/"+strconv.Itoa(pid)) // it may have ended
	}
	return out
}

// AddInodes adds the sockets among the descriptors of a process, a folder such as /proc/1. It needs the user of the
// process, or CAP_SYS_PTRACE.
func AddInodes(own map[uint32]bool, process string) error {
	folder := filepath.Join(process, "fd")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list the sockets of a process: %w", err)
	}
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(folder, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if number, ok := strings.CutPrefix(link, "socket:["); ok {
			if n, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32); err == nil {
				own[uint32(n)] = true
			}
		}
	}
	return nil
}
