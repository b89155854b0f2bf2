package sockdiag

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// alive are the states of a socket that a process uses: it listens, connects, or has a connection.
var alive = Of(Listen, synSent, Established, CloseWait)

const synSent State = 2

// Others counts the TCP sockets of the network namespace that belong to other processes: those with an inode that is
// not among our descriptors.
func (t *Table) Others() (int, error) {
	own, err := ownInodes()
	if err != nil {
		return 0, err
	}
	all, err := t.all(alive)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range all {
		if s.Inode != 0 && !own[s.Inode] { // 0: its process has closed it
			n++
		}
	}
	return n, nil
}

// Listeners are the listening TCP sockets of other processes in the network namespace.
func (t *Table) Listeners() ([]Socket, error) {
	own, err := ownInodes()
	if err != nil {
		return nil, err
	}
	all, err := t.all(Of(Listen))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s Socket) bool { return s.Inode == 0 || own[s.Inode] }), nil
}

// all is every socket in one of states.
func (t *Table) all(states States) ([]Socket, error) {
	all, err := t.dump(states, nil, nil)
	if err != nil && refused(err) && len(t.families) == 1 {
		t.families = []uint8{unix.AF_INET, unix.AF_INET6}
		all, err = t.dump(states, nil, nil)
	}
	return all, err
}

// ownInodes are the sockets among our own descriptors.
func ownInodes() (map[uint32]bool, error) {
	const folder = "/proc/self/fd"
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list our own sockets: %w", err)
	}
	own := make(map[uint32]bool, len(entries))
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
	return own, nil
}
