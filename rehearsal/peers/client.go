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

// answer is what the client got.
type answer struct {
	asked  time.Time
	last   time.Time // of the last byte, or of the failure
	status int       // 0: no response
	err    error     // the failure, also in the middle of a body
}

func (a answer) good() bool { return a.err == nil && a.status == http.StatusOK }

// get sends a request on a new connection, which it closes with the last byte: net/http may retry on one that is kept alive.
func get(ctx context.Context, url string) (a answer) {
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

// idleClient has a connection with one response, and sends no other request.
type idleClient struct {
	conn  net.Conn
	ended sync.WaitGroup
	end   time.Time // when its connection ended; after hangUp
}

const idleTimeout = 10 * time.Second // for the one response

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
		_ = conn.Close() // as clients do at the peer's FIN
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

// hangUp closes the connection if Envoy has not.
func (c *idleClient) hangUp() {
	if c != nil {
		_ = c.conn.Close()
		c.ended.Wait()
	}
}

// lateClients send one request each, one after another in the second after the pod's SIGTERM, before its endpoint is removed.
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
		all.Go(func() { answers[i] = get(ctx, "http://"+address+"/get") })
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
