package node

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

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
