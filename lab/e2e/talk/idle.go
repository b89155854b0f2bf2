package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// idle opens connections, asks once on each, all at the same time so that a proxy between needs as many, and keeps them
// open until ctx ends or the other side closes them. It prints how many the other side has closed.
func idle(ctx context.Context, host string, count int) error {
	at := net.JoinHostPort(host, portHTTP)
	var asking, watching sync.WaitGroup
	closed, failed := make(chan struct{}, count), make(chan error, count)
	for range count {
		asking.Go(func() {
			c, in, err := once(ctx, at)
			if err != nil {
				failed <- err
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			watching.Go(func() {
				defer stop()
				if _, err := in.ReadByte(); ctx.Err() == nil && err != nil {
					closed <- struct{}{}
				}
			})
		})
	}
	asking.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	fmt.Println("begun")
	<-ctx.Done()
	watching.Wait()
	return report(struct{ Closed int }{len(closed)})
}

func once(ctx context.Context, at string) (net.Conn, *bufio.Reader, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(c)
	if _, err = fmt.Fprintf(c, "GET /delay/0.3 HTTP/1.1\r\nHost: %s\r\n\r\n", at); err == nil {
		_, err = loadtest.Receive(in)
	}
	if err != nil {
		_ = c.Close()
	}
	return c, in, err
}
