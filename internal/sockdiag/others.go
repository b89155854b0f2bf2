package sockdiag

import (
	"fmt"
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
	own, err := ownInodes()
	if err != nil {
		return nil, err
	}
	all, err := t.list(states, nil, nil)
	return slices.DeleteFunc(all, func(s Socket) bool { return s.Inode == 0 || own[s.Inode] }), err
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
