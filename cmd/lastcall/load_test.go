package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// load is requests from clients that each keep a connection, and use a fresh one for every third request. Nothing is
// retried: a client library's retries would hide what is lost.
type load struct {
	address string

	mu                          sync.Mutex // guards what follows
	requests, fresh, reconnects int
	failures                    []error
}

// run sends perSecond requests a second by so many clients, until ctx ends, and waits for those in flight.
func (l *load) run(ctx context.Context, clients, perSecond int) {
	var all sync.WaitGroup
	defer all.Wait()
	for range clients {
		all.Go(func() {
			var kept *bufio.Reader // of the connection
			var conn net.Conn
			tick := time.NewTicker(time.Duration(clients) * time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				if n%3 == 0 {
					fresh, err := net.Dial("tcp", l.address)
					if err == nil {
						_, err = ask(fresh, bufio.NewReader(fresh))
						_ = fresh.Close()
					}
					l.note(true, false, err)
				} else {
					var closes bool
					var err error
					if kept == nil {
						if conn, err = net.Dial("tcp", l.address); err == nil {
							kept = bufio.NewReader(conn)
						}
					}
					if err == nil {
						closes, err = ask(conn, kept)
					}
					if kept != nil && (closes || err != nil) {
						_ = conn.Close()
						kept = nil
					}
					l.note(false, closes, err)
				}
				<-tick.C
			}
			if kept != nil {
				_ = conn.Close()
			}
		})
	}
}

func (l *load) note(isFresh, closes bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if isFresh {
		l.fresh++
	}
	if closes {
		l.reconnects++
	}
	if err != nil {
		l.failures = append(l.failures, err)
	}
}

// ask makes one request. After Connection: close the connection must end, with a FIN.
func ask(conn net.Conn, in *bufio.Reader) (closes bool, err error) {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		return false, err
	}
	resp, err := loadtest.Receive(in)
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode != http.StatusOK:
		return false, fmt.Errorf("status %s", resp.Status)
	case !resp.Close:
		return false, nil
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return true, fmt.Errorf("after Connection: close: %w", err)
	}
	return true, nil
}
