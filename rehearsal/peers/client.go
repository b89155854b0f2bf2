package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// answer is what a client got.
type answer struct {
	asked  time.Time
	last   time.Time // the last byte was read, or the request broke
	status int       // 0: no response
	err    error     // what broke, also in the midst of a body
}

func (a answer) good() bool { return a.err == nil && a.status == http.StatusOK }

// ask makes a request on a connection of its own, which it closes with the last
// byte: one that is kept might be retried by net/http.
func ask(ctx context.Context, url string) (a answer) {
	a.asked = time.Now()
	defer func() { a.last = time.Now() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		a.err = err
		return a
	}
	t := &http.Transport{DisableCompression: true}
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(req)
	if err != nil {
		a.err = err
		return a
	}
	a.status = resp.StatusCode
	_, a.err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return a
}

// idleClient holds a connection on which it has been answered once, and asks for
// nothing more.
type idleClient struct {
	conn  net.Conn
	ended sync.WaitGroup
	end   time.Time // when its connection ended; after hangUp
}

const idleTimeout = 10 * time.Second // for the one answer

func connectIdle(ctx context.Context, address string) (*idleClient, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("idle connection: %w", err)
	}
	if err := askOnce(conn, address); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("idle connection: %w", err)
	}
	c := &idleClient{conn: conn}
	c.ended.Go(func() {
		_, _ = conn.Read(make([]byte, 1))
		c.end = time.Now()
		_ = conn.Close() // as clients do that see the other's end
	})
	return c, nil
}

func askOnce(conn net.Conn, address string) error {
	if err := conn.SetDeadline(time.Now().Add(idleTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET /get HTTP/1.1\r\nHost: %s\r\n\r\n", address); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	_ = resp.Body.Close()
	return conn.SetDeadline(time.Time{})
}

// hangUp ends the connection if Envoy has not.
func (c *idleClient) hangUp() {
	if c != nil {
		_ = c.conn.Close()
		c.ended.Wait()
	}
}

// lateClients send one request each, one after the other in the second after
// SIGTERM: their endpoints are not yet updated.
func lateClients(ctx context.Context, address string) (lost int) {
	var all sync.WaitGroup
	answers := make([]answer, lateRequests)
	tick := time.NewTicker(latePeriod)
	defer tick.Stop()
	for i := range answers {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		all.Go(func() { answers[i] = ask(ctx, "http://"+address+"/get") })
	}
	all.Wait()
	for _, a := range answers {
		if !a.good() {
			lost++
		}
	}
	return lost
}

const (
	lateRequests = 10
	latePeriod   = 100 * time.Millisecond
)
