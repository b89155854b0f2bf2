package node

import (
	"path/filepath"
	"strconv"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// Established counts the connections of each local TCP port: for a server's port, its clients.
func Established() (map[int]int, error) {
	all, err := sockets.All(sockdiag.Of(sockdiag.Established))
	if err != nil {
		return nil, err
	}
	out := make(map[int]int)
	for _, s := range all {
		out[int(s.Local.Port())]++
	}
	return out, nil
}

// Listening counts the listening TCP sockets of the processes in p's group, as `netstat -plnt` shows them in a
// container.
func (p *Process) Listening() (int, error) {
	held, err := p.inodes()
	if err != nil {
		return 0, err
	}
	all, err := sockets.All(sockdiag.Of(sockdiag.Listen))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range all {
		if held[s.Inode] {
			n++
		}
	}
	return n, nil
}

// inodes are the group's open sockets.
func (p *Process) inodes() (map[uint32]bool, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	out, group := make(map[uint32]bool), strconv.Itoa(p.PID())
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if fields := process.Stat(pid); err == nil && len(fields) > 2 && fields[2] == group { // state, parent, group, …
			_ = sockdiag.AddInodes(out, folder) // it may have ended
		}
	}
	return out, nil
}
