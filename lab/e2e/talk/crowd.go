package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// crowded has the counts of the clients of one pod.
type crowded struct {
	mu sync.Mutex // guards the rest

	Lost, Refused, Answered int // requests, and connections that were refused
	Failed                  int // requests with another answer than 200, such as a proxy's 503
}

// crowdPause is between two late clients.
const crowdPause = 50 * time.Millisecond

// crowd has clients of one pod, each on a connection of its own: idle ones, which have been answered once; busy ones,
// whose request takes hold; and, when ctx has ended, late ones, one after another until the pod's network is gone.
func crowd(ctx context.Context, host string, idle, busy, late int, hold time.Duration) (*crowded, error) {
	at := net.JoinHostPort(host, portHTTP)
	r := &crowded{}
	for range idle {
		c, _, err := once(ctx, at)
		if err != nil {
			return nil, err
		}
		defer func() { _ = c.Close() }()
	}
	var asking sync.WaitGroup
	for range busy {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintf(c, "GET /delay/%g HTTP/1.1\r\nHost: %s\r\n\r\n", hold.Seconds(), at); err != nil {
			return nil, err
		}
		asking.Go(func() { r.receive(c) })
	}
	fmt.Println("begun")
	<-ctx.Done()
	for range late {
		time.Sleep(crowdPause)
		c, err := net.DialTimeout("tcp", at, time.Second)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			r.count(&r.Refused)
			continue
		case errors.Is(err, syscall.ECONNRESET):
			r.count(&r.Lost)
			continue
		case err != nil: // the pod's network is gone
			asking.Wait()
			return r, nil
		}
		_, _ = fmt.Fprintf(c, "GET /get HTTP/1.1\r\nHost: %s\r\n\r\n", at)
		asking.Go(func() { r.receive(c) })
	}
	asking.Wait()
	return r, nil
}

func (r *crowded) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// receive takes the answer of a request.
func (r *crowded) receive(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	response, err := loadtest.Receive(bufio.NewReader(c))
	switch {
	case err != nil:
		r.count(&r.Lost)
	case response.StatusCode != http.StatusOK:
		r.count(&r.Failed)
	default:
		r.count(&r.Answered)
	}
}
