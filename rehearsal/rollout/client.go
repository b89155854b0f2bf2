package rollout

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Failure is why a request failed; empty if it succeeded.
type Failure string

// The failures. Statuses are failures as well: "503".
const (
	Refused   Failure = "refused"        // by every pod
	Ended     Failure = "no response"    // the connection was reset or ended before the response
	Truncated Failure = "cut response"   // within the response
	Late      Failure = "timeout"        // not within requestTimeout
	NoPods    Failure = "no pods"        // the list of endpoints was empty
	Stopped   Failure = "not counted"    // the rollout was interrupted
	NotSent   Failure = "not sent whole" // the connection failed while the request was written
)

const (
	dialTimeout    = 2 * time.Second
	requestTimeout = 30 * time.Second
)

// client keeps connections alive, as every HTTP client does, and never repeats a request of which a pod may have received a
// byte. net/http's client would repeat some failed requests, and so hide failures.
type client struct {
	targets func() []string // host:port; chosen from at random

	mu      sync.Mutex // guards what follows
	idle    map[string][]*kept
	retries int // refused connections, and requests that were sent to another pod
}

// kept is a kept-alive connection.
type kept struct {
	net.Conn
	r *bufio.Reader
}

func newClient(targets func() []string) *client {
	return &client{targets: targets, idle: make(map[string][]*kept)}
}

// close closes the kept connections.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range c.idle {
		for _, k := range list {
			_ = k.Close()
		}
	}
	clear(c.idle)
}

// do sends a request and reads the response.
func (c *client) do(ctx context.Context, r request) Failure {
	addresses := c.targets()
	if len(addresses) == 0 {
		return NoPods
	}
	for _, i := range rand.Perm(len(addresses)) {
		k, err := c.connect(ctx, addresses[i])
		if err != nil {
			if ctx.Err() != nil {
				return Stopped
			}
			c.mu.Lock()
			c.retries++
			c.mu.Unlock()
			continue
		}
		return c.ask(ctx, k, addresses[i], r)
	}
	return Refused
}

// connect returns a kept-alive connection that is still open, or a new one.
func (c *client) connect(ctx context.Context, address string) (*kept, error) {
	for {
		c.mu.Lock()
		list := c.idle[address]
		if len(list) == 0 {
			c.mu.Unlock()
			break
		}
		k := list[len(list)-1]
		c.idle[address] = list[:len(list)-1]
		c.mu.Unlock()
		if k.open() {
			return k, nil
		}
		_ = k.Close()
	}
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &kept{conn, bufio.NewReader(conn)}, nil
}

// open reports, without waiting, whether the peer has neither closed nor sent unexpected bytes: no request is sent on
// another connection.
func (k *kept) open() bool {
	raw, err := k.Conn.(*net.TCPConn).SyscallConn()
	if err != nil || k.r.Buffered() > 0 {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = errors.Is(err, unix.EAGAIN)
	})
	return open && err == nil
}

func (c *client) ask(ctx context.Context, k *kept, address string, r request) Failure {
	stop := context.AfterFunc(ctx, func() { _ = k.SetDeadline(time.Unix(1, 0)) })
	keep := false
	defer func() {
		// The next request meets a deadline that ctx sets after this.
		if !stop() || !keep {
			_ = k.Close()
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle[address] = append(c.idle[address], k)
	}()
	if err := k.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return Ended
	}
	if _, err := k.Write(r.bytes(address)); err != nil {
		return failure(ctx, err, NotSent)
	}
	resp, err := http.ReadResponse(k.r, &http.Request{Method: r.method})
	if err != nil {
		return failure(ctx, err, Ended)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return failure(ctx, err, Truncated)
	}
	keep = !resp.Close
	if resp.StatusCode != http.StatusOK {
		return Failure(resp.Status[:3])
	}
	return ""
}

func failure(ctx context.Context, err error, otherwise Failure) Failure {
	switch {
	case ctx.Err() != nil:
		return Stopped
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return Late
	}
	return otherwise
}
