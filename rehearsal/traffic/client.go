// Package traffic sends requests to a deployment's pods, and records how each one ended.
//
// A client keeps connections alive, as every HTTP client does, and never repeats a request of which a pod may have
// received a byte. net/http's client would repeat some failed requests, and so hide failures.
package traffic

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
)

const (
	dialTimeout = 2 * time.Second

	// DefaultTimeout is that of a request, if its client sets none.
	DefaultTimeout = 30 * time.Second
)

// Client sends requests. The caller closes it.
type Client struct {
	// Targets returns the pods' addresses, host:port; one is chosen at random.
	Targets func() []string

	// ClusterIP makes the client behave as one of a Service's: connections stay with their pod when it is no longer an
	// endpoint, and a refused connection is a failure. Otherwise it behaves as a gateway does: it uses endpoints only, and
	// sends the request elsewhere when the connection was refused.
	ClusterIP bool

	Timeout time.Duration // of a request; 0: DefaultTimeout

	mu      sync.Mutex // guards the fields below
	idle    map[string][]*kept
	opened  int64
	grpc    *grpc.ClientConn // nil before the first call
	numbers map[string]int64 // of its connections, by local address
}

// kept is a connection that is kept alive between requests.
type kept struct {
	*net.TCPConn
	r       *bufio.Reader
	address string
	number  int64
	tries   int // addresses that were tried for it
}

// Close closes the kept connections.
func (c *Client) Close() {
	c.mu.Lock()
	channel, idle := c.grpc, c.idle
	c.idle = nil
	c.mu.Unlock()
	if channel != nil {
		_ = channel.Close() // calls dial's function, which locks
	}
	for _, list := range idle {
		for _, k := range list {
			_ = k.Close()
		}
	}
}

// Do sends a request and reads the response. The end of ctx ends the request.
func (c *Client) Do(ctx context.Context, r Request) (o Outcome) {
	o.Began = time.Now()
	defer func() { o.Last = time.Now() }()
	if r.Protocol == GRPC {
		c.call(ctx, r, &o)
		return o
	}
	if k := c.connect(ctx, r, &o); k != nil {
		c.ask(ctx, k, r, &o)
	}
	return o
}

// connect returns a connection for a request, or nil with the failure in the outcome, whose address is then the last
// one that refused.
func (c *Client) connect(ctx context.Context, r Request, o *Outcome) *kept {
	isAlone := r.Protocol == TCP || r.Protocol == WebSocket
	if c.ClusterIP && !isAlone {
		if k := c.take(""); k != nil {
			return o.over(k)
		}
	}
	addresses := c.Targets()
	o.Failure = NoPods
	for tried, i := range rand.Perm(len(addresses)) {
		address := addresses[i]
		if !c.ClusterIP && !isAlone {
			if k := c.take(address); k != nil {
				return o.over(k)
			}
		}
		k, err := c.dial(ctx, address)
		if err == nil {
			k.tries = tried + 1
			return o.over(k)
		}
		if o.fail(ctx, err, Refused); o.Failure == Stopped {
			return nil
		}
		o.Failure, o.Address, o.Tries = Refused, address, len(addresses)
		if c.ClusterIP {
			break
		}
	}
	return nil
}

// over notes the connection of a request.
func (o *Outcome) over(k *kept) *kept {
	o.Failure, o.Detail, o.Address, o.Conn, o.Tries = "", "", k.address, k.number, k.tries
	return k
}

// take returns an idle connection that is still open, or nil.
func (c *Client) take(key string) *kept {
	for {
		c.mu.Lock()
		list := c.idle[key]
		if len(list) == 0 {
			c.mu.Unlock()
			return nil
		}
		k := list[len(list)-1]
		c.idle[key] = list[:len(list)-1]
		c.mu.Unlock()
		if k.open() {
			return k
		}
		_ = k.Close()
	}
}

func (c *Client) dial(ctx context.Context, address string) (*kept, error) {
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	k := &kept{TCPConn: conn.(*net.TCPConn), r: bufio.NewReader(conn), address: address}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	k.number = c.opened
	return k, nil
}

// keep stores a connection for the next request; one to a pod that is no target any longer is closed.
func (c *Client) keep(k *kept) {
	key := k.address
	if c.ClusterIP {
		key = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ClusterIP && !slices.Contains(c.Targets(), k.address) {
		_ = k.Close()
		return
	}
	if c.idle == nil {
		c.idle = make(map[string][]*kept)
	}
	c.idle[key] = append(c.idle[key], k)
}

func (c *Client) ask(ctx context.Context, k *kept, r Request, o *Outcome) {
	_ = k.SetDeadline(time.Now().Add(cmp.Or(c.Timeout, DefaultTimeout))) // a write to a closed connection fails
	stop := context.AfterFunc(ctx, func() { _ = k.SetDeadline(time.Unix(1, 0)) })
	keep := false
	defer func() {
		// The next request meets a deadline that ctx sets after this.
		if !stop() || !keep {
			_ = k.Close()
			return
		}
		c.keep(k)
	}()
	if r.Protocol == TCP {
		k.talk(ctx, r.Body, o)
		return
	}
	resp, failure, err := k.exchange(r.to(k.address))
	if failure == Truncated { // a part of the head is no response
		failure = Ended
	}
	if err != nil {
		o.fail(ctx, err, failure)
		return
	}
	o.First, o.Status = time.Now(), resp.StatusCode
	if r.Protocol == WebSocket && resp.StatusCode == http.StatusSwitchingProtocols {
		k.holdWebSocket(ctx, r.Body, o)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	o.IsByClose = resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
	if _, err := io.Copy(o, resp.Body); err != nil {
		failure = Truncated
		if r.Protocol == Events {
			failure = NoClose
		}
		o.fail(ctx, err, failure)
		return
	}
	keep = !resp.Close
	if resp.StatusCode >= http.StatusBadRequest {
		o.Failure = Failure(fmt.Sprint(resp.StatusCode))
	}
}

// talk sends a message, and reads until the peer closes the connection.
func (k *kept) talk(ctx context.Context, message string, o *Outcome) {
	o.IsByClose = true
	if _, err := io.WriteString(k, message); err != nil {
		o.fail(ctx, err, Ended)
		return
	}
	if _, err := k.r.Peek(1); err != nil {
		o.fail(ctx, err, Ended)
		return
	}
	o.First = time.Now()
	if _, err := io.Copy(o, k.r); err != nil {
		o.fail(ctx, err, Truncated)
	}
}
