package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a client.
type Options struct {
	Port    int    // of 127.0.0.1
	Kinds   []Kind // of the streams, in turns
	Streams int
	Every   time.Duration // between the tokens of a stream
}

// Result counts the tokens received during a measurement.
type Result struct {
	Took     time.Duration
	Lateness []time.Duration // of each token, sorted
}

// Percentile of the lateness; p is 0 to 100.
func (r Result) Percentile(p float64) time.Duration {
	if len(r.Lateness) == 0 {
		return 0
	}
	return r.Lateness[min(len(r.Lateness)-1, int(float64(len(r.Lateness))*p/100))]
}

// Client has the streams.
type Client struct {
	poller   *poller
	options  Options
	streams  []*stream
	byFD     map[int32]*stream
	open     int // streams that have not ended
	answered int // streams whose response's head has come
}

// openTimeout is for the heads of all responses.
const openTimeout = 20 * time.Second

// Open opens all streams, and returns once each of them has had a token.
func Open(ctx context.Context, o Options) (*Client, error) {
	if o.Streams < 1 || o.Every < time.Microsecond || len(o.Kinds) == 0 {
		return nil, fmt.Errorf("open streams: %d of %v each %s: all must be more than 0", o.Streams, o.Kinds, o.Every)
	}
	p, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("open streams: %w", err)
	}
	c := &Client{poller: p, options: o, byFD: map[int32]*stream{}}
	if err := c.openAll(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("open streams: %w", err)
	}
	return c, nil
}

// openAll opens a few at a time, so that no queue of connections to accept overflows.
func (c *Client) openAll(ctx context.Context) error {
	const atOnce = 128
	started := 0
	limit := time.Now().Add(openTimeout)
	for started < c.options.Streams {
		for len(c.streams) < c.options.Streams && len(c.streams)-c.answered < atOnce {
			if err := c.dial(c.options.Kinds[len(c.streams)%len(c.options.Kinds)]); err != nil {
				return fmt.Errorf("stream %d: %w", len(c.streams), err)
			}
		}
		err := c.receive(longestWait, func(s *stream, _ time.Duration) {
			if s.next == 1 {
				started++
			}
		})
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case c.open < len(c.streams):
			return fmt.Errorf("%d of %d have ended: %w", len(c.streams)-c.open, len(c.streams), c.firstError())
		case time.Now().After(limit):
			return fmt.Errorf("%d of %d have had a token after %s", started, c.options.Streams, openTimeout)
		}
	}
	return nil
}

func (c *Client) firstError() error {
	for _, s := range c.streams {
		if s.end.Err != nil {
			return s.end.Err
		}
	}
	return errors.New("nothing comes")
}

func (c *Client) dial(kind Kind) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s := &stream{fd: fd, kind: kind}
	c.streams = append(c.streams, s)
	c.byFD[int32(fd)] = s
	c.open++
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: app\r\nAccept: text/event-stream\r\n\r\n", kind.path(c.options.Every))
	if kind == WebSocket {
		request = fmt.Sprintf("GET %s HTTP/1.1\r\nHost: app\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", kind.path(c.options.Every), sampleKey)
	}
	if err := errors.Join(
		unix.Connect(fd, &unix.SockaddrInet4{Port: c.options.Port, Addr: [4]byte{127, 0, 0, 1}}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
	); err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte(request)); err != nil {
		return err
	}
	return errors.Join(unix.SetNonblock(fd, true), c.poller.add(fd))
}

// receive reads from the streams that have something, after wait at most, and calls token for each token.
func (c *Client) receive(wait time.Duration, token func(s *stream, lateness time.Duration)) error {
	ready, err := c.poller.wait(wait)
	if err != nil {
		return err
	}
	var buf [16 << 10]byte
	for _, event := range ready {
		s := c.byFD[event.Fd]
		n, err := unix.Read(s.fd, buf[:])
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		now := time.Now()
		if err == nil && n > 0 {
			waited := s.at == inHead
			err = s.feed(buf[:n], now, token)
			if waited && s.at != inHead {
				c.answered++
			}
			if err == nil {
				continue
			}
		}
		s.close(now, err)
		delete(c.byFD, event.Fd)
		c.open--
	}
	return nil
}

// Run reads tokens for so long. A stream that ends meanwhile is an error.
func (c *Client) Run(ctx context.Context, duration time.Duration) (Result, error) {
	expected := int(float64(c.options.Streams) * duration.Seconds() / c.options.Every.Seconds())
	r := Result{Lateness: make([]time.Duration, 0, expected+expected/4)}
	err := onThread(func() error {
		began := time.Now()
		for r.Took < duration && ctx.Err() == nil {
			if err := c.receive(longestWait, func(_ *stream, lateness time.Duration) { r.Lateness = append(r.Lateness, lateness) }); err != nil {
				return err
			}
			if c.open < c.options.Streams {
				return fmt.Errorf("%d of %d streams have ended: %w", c.options.Streams-c.open, c.options.Streams, c.firstError())
			}
			r.Took = time.Since(began)
		}
		return ctx.Err()
	})
	if err != nil {
		return Result{}, fmt.Errorf("read streams: %w", err)
	}
	slices.Sort(r.Lateness)
	return r, nil
}

// Watch reads until all streams have ended, and returns how each did. One whose connection is open then has no time.
func (c *Client) Watch(ctx context.Context, until time.Time) ([]End, error) {
	for c.open > 0 && time.Now().Before(until) {
		if err := c.receive(longestWait, func(*stream, time.Duration) {}); err != nil {
			return nil, fmt.Errorf("watch streams: %w", err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	ends := make([]End, len(c.streams))
	for i, s := range c.streams {
		if ends[i] = s.end; c.byFD[int32(s.fd)] == s {
			ends[i] = End{Err: errors.New("still open")}
		}
	}
	return ends, nil
}

// Close closes all connections.
func (c *Client) Close() {
	for _, s := range c.byFD {
		_ = unix.Close(s.fd)
	}
	_ = unix.Close(c.poller.fd)
}
