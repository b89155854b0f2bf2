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
		// An app of its own for each: the ports that the last one's connections have occupied are of no concern to it.
		app, err := b.app(ctx, backend, place{Clients: b.held})
		if err != nil {
			return nil, err
		}
		defer app.stop()
		proxy, err := b.proxy(ctx, t.subject, app, place{Clients: b.held + 100})
		if err != nil {
			return nil, err
		}
		defer proxy.stop()
		before, without, err := proxy.holds()
		if err != nil {
			return nil, err
		}
		clients, err := openMany(ctx, proxy.port, b.held, func(_ int, conn net.Conn) error { return getSmall(conn) })
		defer closeAll(clients)
		if err == nil {
			err = poll.Pause(ctx, settle)
		}
		if err != nil {
			return nil, err
		}
		resident, with, err := proxy.holds()
		count := float64(b.held)
		return values{idleMemory: before, withThem: resident, perPair: (resident - before) / count,
			socketsEach: (with - without) / count}, err
	},
}

// holds is the process's resident memory in bytes, and its open descriptors.
func (p *process) holds() (resident, open float64, err error) {
	bytes, err1 := p.resident()
	descriptors, err2 := p.descriptors()
	return float64(bytes), float64(descriptors), errors.Join(err1, err2)
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
