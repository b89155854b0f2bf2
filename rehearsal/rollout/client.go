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

// Failure is what became of a request that was not answered rightly; empty if it
// was.
type Failure string

// What can go wrong. Statuses are Failures of their own: "503".
const (
	Refused   Failure = "refused"        // by every pod there was
	Ended     Failure = "no answer"      // the connection was reset or ended before the answer
	Truncated Failure = "cut answer"     // within the answer
	Late      Failure = "timeout"        // not within requestTimeout
	Nobody    Failure = "no pods"        // the list was empty
	Stopped   Failure = "not counted"    // the rollout was broken off
	NotSent   Failure = "not sent whole" // the connection broke while the request was written
)

const (
	dialTimeout    = 2 * time.Second
	requestTimeout = 30 * time.Second
)

// client keeps connections alive, as every HTTP client does, and makes no
// request twice of which anybody may have seen a byte. net/http's own
// would repeat some that were cut, and so hide what is counted here.
type client struct {
	targets func() []string // host:port; chosen from at random

	mu      sync.Mutex // guards what follows
	idle    map[string][]*kept
	retries int // connections that were refused, and requests that went elsewhere
}

// kept is a connection that has been used and may be again.
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

// do makes a request and reads the answer.
func (c *client) do(ctx context.Context, r request) Failure {
	addresses := c.targets()
	if len(addresses) == 0 {
		return Nobody
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

// connect takes a kept connection that is still open, or makes one.
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

// open looks, without waiting, whether the other side has closed or said
// something unasked: no byte is sent on such a connection.
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
		// A deadline that ctx sets after this is found by the next request.
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
