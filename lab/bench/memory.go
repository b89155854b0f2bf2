package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// settle is how long connections have been idle before their memory is counted: collectors and pools have come to rest.
const settle = 3 * time.Second

var withThem = &metric{title: "with them", show: megabytes}

var memoryTable = &table{
	name: "memory", what: "resident memory with --held idle connections",
	apps: []subject{backend}, ownApps: true, many: true,
	how: func(b *bench) string {
		return fmt.Sprintf("%s idle keep-alive connections, each of which has made one request, %s after the last one, without the kernel's "+
			"part. Sockets for each: 2 is a connection to the app for each client's, 1 a pool.",
			whole(float64(b.held)), settle)
	},
	subjects: []string{"lastcall-http", "lastcall-tcp", "envoy", "haproxy-http", "haproxy-tcp", "nginx"},
	columns:  []column{middle(idleMemory), middle(withThem), middle(perPair), middle(socketsEach)},
	ratios:   []*metric{perPair},
	aims: []aim{
		{ours: "lastcall-http", of: perPair, limit: 10e3}, {ours: "lastcall-http", of: perPair, theirs: "envoy", limit: 1},
		{ours: "lastcall-tcp", of: perPair, limit: 10e3},
	},
	rounds: 3, // the memory of one program hardly differs from round to round
	quick:  []string{"lastcall-http", "envoy"},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		held, err := b.hold(ctx, t.subject, b.held)
		if err != nil {
			return nil, err
		}
		defer held.release()
		return values{idleMemory: held.before, withThem: held.resident,
			perPair:     (held.resident - held.before) / float64(b.held),
			socketsEach: held.sockets / float64(b.held)}, nil
	},
}

// holding is a proxy with idle connections.
type holding struct {
	proxy            *process
	before, resident float64 // bytes: without them, and with them
	sockets          float64 // that they have added to the proxy
	release          func()
}

// hold opens so many connections through the subject, each of which makes one request, and waits until they have
// settled.
func (b *bench) hold(ctx context.Context, s subject, count int) (h holding, err error) {
	var ends []func()
	h.release = func() {
		for i := range ends {
			ends[len(ends)-1-i]()
		}
	}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	// An app of its own for each: the ports that the last one's connections have occupied are of no concern to it.
	app, err := b.app(ctx, backend, place{Clients: count})
	if err != nil {
		return h, err
	}
	ends = append(ends, app.stop)
	if h.proxy, err = b.proxy(ctx, s, app, place{Clients: count + 100}); err != nil {
		return h, err
	}
	ends = append(ends, h.proxy.stop)
	resident, err := h.proxy.resident()
	if err != nil {
		return h, err
	}
	before, err := h.proxy.descriptors()
	if err != nil {
		return h, err
	}
	clients, err := openMany(ctx, h.proxy.port, count, func(_ int, conn net.Conn) error { return getSmall(conn) })
	ends = append(ends, func() { closeAll(clients) })
	if err != nil {
		return h, err
	}
	if err := poll.Pause(ctx, settle); err != nil {
		return h, err
	}
	with, err := h.proxy.resident()
	if err != nil {
		return h, err
	}
	after, err := h.proxy.descriptors()
	h.before, h.resident, h.sockets = float64(resident), float64(with), float64(after-before)
	return h, err
}

// openMany opens so many connections, a few at a time, and calls first on each. What it has opened is returned with an
// error too. The clients have several loopback addresses, for one has fewer ports than there may be connections.
func openMany(ctx context.Context, port, count int, first func(i int, conn net.Conn) error) ([]net.Conn, error) {
	const atOnce, perAddress = 32, 4000
	conns, failures := make([]net.Conn, count), make([]error, atOnce)
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < count && failures[worker] == nil; i += atOnce {
				from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/perAddress))}
				dialer := net.Dialer{Timeout: readyTimeout, KeepAlive: -1, Control: portLater, LocalAddr: from}
				conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					failures[worker] = fmt.Errorf("open connection %d: %w", i, err)
					return
				}
				conns[i] = conn
				if err := first(i, conn); err != nil {
					failures[worker] = fmt.Errorf("use connection %d: %w", i, err)
				}
			}
		})
	}
	all.Wait()
	return conns, errors.Join(failures...)
}

// portLater lets connect choose the port, and not bind: a port that was bound is not available to others, for a minute
// after its end too, where one that was connected is taken only between two addresses (ip(7)).
func portLater(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	return errors.Join(err, failed)
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// getSmall makes one request, and leaves the connection open.
func getSmall(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET /get HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("read a response: %w", err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read a body: %w", err)
	}
	if response.StatusCode != http.StatusOK || response.Close {
		return fmt.Errorf("read a response: %s, close %t", response.Status, response.Close)
	}
	return conn.SetDeadline(time.Time{})
}
