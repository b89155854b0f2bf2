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
)

// memorySample is one round of one subject.
type memorySample struct {
	idle, held  int // bytes resident: before the first connection, and with all of them
	pairs       int // connections of clients
	descriptors int // that they have added
}

// perPair is bytes for each client's connection.
func (s memorySample) perPair() int { return (s.held - s.idle) / s.pairs }

// settle is how long connections have been idle before their memory is counted: collectors and pools have come to rest.
const settle = 3 * time.Second

// memory compares what idle connections occupy, each of which has made one request.
func (b *bench) memory(ctx context.Context) error {
	subjects, samples := b.of("memory"), map[string][]memorySample{}
	err := b.inTurns(subjects, func(s subject) (string, error) {
		result, err := b.occupy(ctx, s)
		samples[s.name] = append(samples[s.name], result)
		return fmt.Sprintf("%s idle, %s with %d connections", megabytes(result.idle), megabytes(result.held), b.held), err
	})
	if err != nil {
		return err
	}
	fmt.Printf("Resident memory with %d idle keep-alive connections, each of which has made one request, medians of %d rounds. "+
		"What the kernel keeps for sockets is not in it.\n\n", b.held, b.rounds)
	fmt.Println("| | before | with them | per client's connection | lowest to highest | sockets for each |")
	fmt.Println("|---|---:|---:|---:|---:|---:|")
	for _, s := range subjects {
		rounds := samples[s.name]
		least, most := extremes(rounds, memorySample.perPair)
		fmt.Printf("| %s | %s | %s | %s | %s to %s | %.2f |\n", s.title,
			megabytes(median(rounds, func(m memorySample) int { return m.idle })), megabytes(median(rounds, func(m memorySample) int { return m.held })),
			kilobytes(median(rounds, memorySample.perPair)), kilobytes(least), kilobytes(most),
			median(rounds, func(m memorySample) float64 { return float64(m.descriptors) / float64(m.pairs) }))
	}
	return nil
}

func kilobytes(bytes int) string { return fmt.Sprintf("%.1f KB", float64(bytes)/1e3) }

func (b *bench) occupy(ctx context.Context, s subject) (memorySample, error) {
	// An app of its own for each: the ports that the last one's connections have occupied are of no concern to it.
	app, err := b.app(ctx, backend, place{Clients: b.held})
	if err != nil {
		return memorySample{}, err
	}
	defer app.stop()
	proxy, err := b.proxy(ctx, s, app, place{Clients: b.held + 100})
	if err != nil {
		return memorySample{}, err
	}
	defer proxy.stop()
	result := memorySample{pairs: b.held}
	if result.idle, err = proxy.resident(); err != nil {
		return memorySample{}, err
	}
	before, err := proxy.descriptors()
	if err != nil {
		return memorySample{}, err
	}
	clients, err := openMany(ctx, proxy.port, b.held, func(_ int, conn net.Conn) error { return getSmall(conn) })
	defer closeAll(clients)
	if err != nil {
		return memorySample{}, err
	}
	if err := pause(ctx, settle); err != nil {
		return memorySample{}, err
	}
	if result.held, err = proxy.resident(); err != nil {
		return memorySample{}, err
	}
	after, err := proxy.descriptors()
	result.descriptors = after - before
	return result, err
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
				dialer := net.Dialer{Timeout: readyTimeout, KeepAlive: -1, Control: portLater, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/perAddress))}}
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

// pause returns after d, or with the error of a ctx that ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
