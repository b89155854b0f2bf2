package mesh

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// meeting is where the hooks of a pod find each other: an abstract unix socket belongs to the network namespace, which
// the containers of a pod share. It needs no port, and no volume.
const meeting = "@lastcall.dev/hook"

// meetingAt is the place of the hooks of one Envoy: with hostNetwork pods share the network namespace, and each Envoy has
// an admin port of its own.
func meetingAt(admin string) string {
	return meeting + admin[strings.LastIndexAny(admin, ":/"):]
}

// visitEvery is how often an app's hook looks for the sidecar's. The kubelet starts both at the same time, but on a busy
// node one of them later.
const visitEvery = 50 * time.Millisecond

// guest is an app's hook. Its connection, which a process of the container holds later, ends with the container.
type guest struct {
	stop context.CancelFunc
	conn chan net.Conn // nil: no sidecar's hook runs
}

func visit(name string) *guest {
	ctx, stop := context.WithCancel(context.Background())
	g := &guest{stop, make(chan net.Conn, 1)}
	go func() {
		tick := time.NewTicker(visitEvery)
		defer tick.Stop()
		for {
			conn, err := net.Dial("unix", name)
			if err == nil {
				g.conn <- conn
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				g.conn <- nil
				return
			}
		}
	}()
	return g
}

// leave ends the visit, and keeps the connection open in another process.
func (g *guest) leave(stay func(net.Conn) error) error {
	g.stop()
	conn := <-g.conn
	if conn == nil {
		return nil
	}
	defer conn.Close()
	return stay(conn)
}

// guestsMost bounds the app containers of a pod.
const guestsMost = 64

// host is the sidecar's hook.
type host struct {
	ln   net.Listener // nil: the hooks of the pod cannot find each other
	left atomic.Int32 // app containers that have not ended
	came atomic.Int32
}

func receive(name string, log *slog.Logger) *host {
	h := &host{}
	var err error
	if h.ln, err = net.Listen("unix", name); err != nil {
		log.Warn("the hooks of the app's containers cannot find this one; does another hook with --sidecar run in this pod?", "error", err)
		return h
	}
	go func() {
		for {
			conn, err := h.ln.Accept()
			if err != nil {
				return
			}
			if h.left.Load() == guestsMost {
				_ = conn.Close()
				continue
			}
			h.left.Add(1)
			h.came.Add(1)
			go func() {
				_, _ = io.Copy(io.Discard, conn) // until its container ends
				_ = conn.Close()
				h.left.Add(-1)
			}()
		}
	}()
	return h
}

func (h *host) close() {
	if h.ln != nil {
		_ = h.ln.Close()
	}
}
