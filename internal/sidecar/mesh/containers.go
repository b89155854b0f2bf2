package mesh

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// socketPrefix begins the name of the socket by which the hooks of a pod find each other: an abstract unix socket
// belongs to the network namespace, which the containers of a pod share. It needs no port, and no volume.
const socketPrefix = "@lastcall.dev/hook"

// socketOf is the name for the hooks of one Envoy: with hostNetwork pods share the network namespace, and each Envoy
// has an admin port of its own.
func socketOf(admin string) string { return socketPrefix + admin[strings.LastIndexAny(admin, ":/"):] }

// connectEvery is how often an app's hook looks for the sidecar's. The kubelet starts both at the same time, but on a
// busy node one of them later.
const connectEvery = 50 * time.Millisecond

// appConn is the connection of an app's hook to the sidecar's. A process of the container holds it later, so that it
// ends with the container.
type appConn struct {
	stop context.CancelFunc
	conn chan net.Conn // nil: no sidecar's hook runs
}

func connectToSidecar(name string) *appConn {
	ctx, stop := context.WithCancel(context.Background())
	g := &appConn{stop, make(chan net.Conn, 1)}
	go func() {
		var conn net.Conn
		_ = poll.Until(ctx, connectEvery, func() bool {
			found, err := net.Dial("unix", name)
			if err == nil {
				conn = found
			}
			return err == nil
		})
		g.conn <- conn
	}()
	return g
}

// leave ends the search, and keeps the connection open in another process.
func (g *appConn) leave(stay func(net.Conn) error) error {
	g.stop()
	conn := <-g.conn
	if conn == nil {
		return nil
	}
	defer conn.Close()
	return stay(conn)
}

// maxContainers bounds the app containers of a pod.
const maxContainers = 64

// containers are the app's, as seen by the sidecar's hook.
type containers struct {
	ln        net.Listener // nil: the hooks of the pod cannot find each other
	running   atomic.Int32 // app containers that have not ended
	connected atomic.Int32
}

func acceptContainers(name string, log *slog.Logger) *containers {
	h := &containers{}
	var err error
	if h.ln, err = net.Listen("unix", name); err != nil {
		log.Warn("the hooks of the app's containers cannot find this one; does another hook with --sidecar run in this pod?",
			"error", err)
		return h
	}
	go func() {
		for {
			conn, err := h.ln.Accept()
			if err != nil {
				return
			}
			if h.running.Load() == maxContainers {
				_ = conn.Close()
				continue
			}
			h.running.Add(1)
			h.connected.Add(1)
			go func() {
				_, _ = io.Copy(io.Discard, conn) // until its container ends
				_ = conn.Close()
				h.running.Add(-1)
			}()
		}
	}()
	return h
}

func (h *containers) close() {
	if h.ln != nil {
		_ = h.ln.Close()
	}
}

// otherSockets counts the sockets of the pod's other containers.
func otherSockets() (int, error) {
	table, err := sockdiag.OpenTable()
	if err != nil {
		return 0, err
	}
	defer table.Close()
	return table.OfOtherContainers()
}
