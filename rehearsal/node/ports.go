package node

import (
	"net"
	"strconv"

	"github.com/lastcall-dev/lastcall/internal/sidecar/freeport"
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
	held := sockdiag.Inodes(process.Group(p.PID()))
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

// NextPort returns a free TCP port. It is reserved until the node is closed: seconds pass before the port's server
// listens.
func (n *Node) NextPort() (int, error) {
	port, release, err := freeport.Reserve("127.0.0.1")
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports = append(n.ports, release)
	return port, nil
}

// Loopback is the address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
