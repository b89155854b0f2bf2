package bulk

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a load of large bodies.
type Options struct {
	Address     string // host:port
	Connections int
	Size        int64 // of a body, bytes
	Upload      bool  // else the bodies are the responses'
	Duration    time.Duration
	TLS         *tls.Config // of the clients, which then copy and decrypt what they receive; nil: none
}

// Result is what was moved.
type Result struct {
	Bytes  int64 // of bodies, also of those that the end of the time cut
	Bodies int64 // that were moved whole
	Took   time.Duration
}

// Run moves bodies one after another on each connection until the time has ended. A response other than 200 and a broken
// connection are errors.
func Run(ctx context.Context, o Options) (Result, error) {
	began := time.Now()
	end := began.Add(o.Duration)
	var (
		moved, bodies atomic.Int64
		all           sync.WaitGroup
		failures      = make([]error, o.Connections)
	)
	for i := range o.Connections {
		all.Go(func() {
			if err := o.move(ctx, end, &moved, &bodies); !errors.Is(err, os.ErrDeadlineExceeded) {
				failures[i] = err
			}
		})
	}
	all.Wait()
	return Result{Bytes: moved.Load(), Bodies: bodies.Load(), Took: time.Since(began)}, errors.Join(append(failures, ctx.Err())...)
}

func (o Options) move(ctx context.Context, end time.Time, moved, bodies *atomic.Int64) error {
	dialed, err := new(net.Dialer).DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer dialed.Close()
	defer context.AfterFunc(ctx, func() { _ = dialed.SetDeadline(time.Unix(1, 0)) })()
	if err := dialed.SetDeadline(end); err != nil {
		return err
	}
	conn := dialed
	if o.TLS != nil {
		conn = tls.Client(dialed, o.TLS)
	}
	content, err := zeros()
	if err != nil {
		return err
	}
	defer content.Close()
	in := bufio.NewReaderSize(conn, 4<<10)
	count := func(n int64) { moved.Add(n) }
	for {
		if err := o.one(conn, in, content, count); err != nil {
			return err
		}
		bodies.Add(1)
	}
}

// one moves one body.
func (o Options) one(conn net.Conn, in *bufio.Reader, content *os.File, count func(int64)) error {
	head := fmt.Sprintf("GET /bytes/%d HTTP/1.1\r\nHost: app\r\n\r\n", o.Size)
	if o.Upload {
		head = fmt.Sprintf("POST /upload HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n", o.Size)
	}
	if _, err := conn.Write([]byte(head)); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if o.Upload {
		if err := send(conn, content, o.Size, count); err != nil {
			return fmt.Errorf("send a body: %w", err)
		}
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return fmt.Errorf("read a response: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read a response: status %s", response.Status)
	}
	if o.Upload {
		return nil
	}
	if response.ContentLength != o.Size {
		return fmt.Errorf("read a response: Content-Length is %d, not %d", response.ContentLength, o.Size)
	}
	if err := discardFrom(conn, in, o.Size, count); err != nil {
		return fmt.Errorf("read a body: %w", err)
	}
	return nil
}
