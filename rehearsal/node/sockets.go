package node

import (
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"sync"

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

// Ports returns TCP ports of loopback, each once. They are below Linux's range for outgoing connections, so that no
// client gets one before its server listens.
type Ports struct {
	mu   sync.Mutex // guards used
	used map[int]bool
}

const (
	firstPort = 10_000
	lastPort  = 32_000
)

// Next returns a port without a listener.
func (p *Ports) Next() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		p.used = make(map[int]bool)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if p.used[port] {
			continue
		}
		p.used[port] = true
		ln, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			continue
		}
		_ = ln.Close()
		return port, nil
	}
	return 0, errors.New("find a free TCP port of 127.0.0.1 from 10000 to 32000: none in 1000 tries")
}

// Loopback is the address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
