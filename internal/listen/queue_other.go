//go:build !linux

package listen

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// maxQueued is how many connections TakeQueued accepts at most: the length of a full queue.
const maxQueued = 1 << 12

// TakeQueued is described in queue_linux.go. Unlike that version, it waits for Settle after the last connection.
func TakeQueued(ctx context.Context, ln *net.TCPListener, serve func(*net.TCPConn)) error {
	for range maxQueued {
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

// HasUnread is described in queue_linux.go.
func HasUnread(net.Conn) bool { return false }
