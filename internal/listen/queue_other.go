//go:build !linux

package listen

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// mostQueued is how many connections TakeQueued accepts at most: the length of a full queue.
const mostQueued = 1 << 12

// TakeQueued accepts the connections that wait in the queue of a listener that is about to be
// closed, and hands each to serve: closing would reset them. Nothing else may accept from the
// listener meanwhile. Unlike the version for Linux it waits for Settle after the last connection.
func TakeQueued(ctx context.Context, ln *net.TCPListener, serve func(*net.TCPConn)) error {
	for range mostQueued {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := ln.SetDeadline(time.Now().Add(Settle)); err != nil {
			return err
		}
		c, err := ln.AcceptTCP()
		switch {
		case err == nil:
			serve(c)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return err
		}
	}
	return nil
}
