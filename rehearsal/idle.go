package rehearsal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// idleClients are other clients of a pod with idle connections: one has had a response and keeps its connection alive,
// and one has connected but sent no request, as connection pools do.
type idleClients struct {
	conns    []net.Conn
	watching sync.WaitGroup

	mu     sync.Mutex // guards the fields below, until end
	closed int        // by the pod, with a FIN
	broken []error    // by the pod, in another way
}

const idleTimeout = 10 * time.Second // for the one response

// connectIdle connects to address. It omits a connection that the app does not keep alive.
func connectIdle(ctx context.Context, address string) (*idleClients, error) {
	c := &idleClients{}
	var d net.Dialer
	for _, withRequest := range []bool{true, false} {
		conn, err := d.DialContext(ctx, "tcp", address)
		isKept := true
		if err == nil && withRequest {
			if isKept, err = requestOnce(conn, address); err != nil || !isKept {
				_ = conn.Close()
			}
		}
		if err != nil {
			c.end(0)
			return nil, fmt.Errorf("idle connection: %w", err)
		}
		if isKept {
			c.conns = append(c.conns, conn)
			c.watching.Go(func() { c.watch(conn) })
		}
	}
	return c, nil
}

// requestOnce sends a request and reports whether the connection is kept alive.
func requestOnce(conn net.Conn, address string) (kept bool, err error) {
	_ = conn.SetDeadline(time.Now().Add(idleTimeout)) // a closed connection fails below
	if _, err := fmt.Fprintf(conn, "GET /get HTTP/1.1\r\nHost: %s\r\n\r\n", address); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	_ = conn.SetDeadline(time.Time{})
	return !resp.Close, err
}

// watch waits for the end of a connection, and closes it as clients do.
func (c *idleClients) watch(conn net.Conn) {
	_, err := conn.Read(make([]byte, 1))
	_ = conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // the pod has not closed it
	case errors.Is(err, io.EOF):
		c.closed++
	case err == nil:
		c.broken = append(c.broken, errors.New("bytes without a request"))
	default:
		c.broken = append(c.broken, err)
	}
}

// end returns when the pod has closed all connections, or closes the rest after most: the kernel closes those of a
// killed Envoy a moment after its agent has exited.
func (c *idleClients) end(most time.Duration) {
	if c == nil {
		return
	}
	for _, conn := range c.conns {
		_ = conn.SetReadDeadline(time.Now().Add(most))
	}
	c.watching.Wait()
}
