package listen

import (
	"context"
	"net"
	"os"
	"syscall"
)

// TakeQueued accepts the connections that wait in the queue of a listener that is about to be closed, and hands each to
// serve: closing would reset them. Nothing else may accept from the listener meanwhile. It does not wait: it accepts
// those that were waiting when it was called, and at most latecomers more.
func TakeQueued(ctx context.Context, ln *net.TCPListener, serve func(*net.TCPConn)) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	return TakeQueuedBy(ctx, raw, func(listener int) bool {
		fd := acceptOne(listener)
		if fd < 0 {
			return false
		}
		if c, err := connOf(fd); err == nil {
			serve(c)
		}
		return true
	})
}

// TakeQueuedBy is TakeQueued for any kind of listener. accept takes a connection from the queue; it returns false if
// there is none.
func TakeQueuedBy(ctx context.Context, raw syscall.RawConn, accept func(listener int) bool) error {
	left, more := -1, true
	for more && ctx.Err() == nil && left != 0 {
		if err := raw.Control(func(listener uintptr) {
			if left < 0 {
				left = queued(int(listener)) + latecomers
			}
			more = accept(int(listener))
		}); err != nil {
			return err
		}
		left--
	}
	return ctx.Err()
}

// latecomers are enough that the queue becomes empty under any load that the process could have served.
const latecomers = 256

// queued is how many connections wait in the queue of a listener: tcpi_unacked (tcp_get_info), at byte 24 of struct
// tcp_info. Package syscall has no call for TCP_INFO; this one reads the first 32 bytes of any option, as words.
func queued(fd int) int {
	info, err := syscall.GetsockoptICMPv6Filter(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
	if err != nil {
		return 1 << 12 // the usual length of a full queue (net.core.somaxconn)
	}
	return int(info.Data[6])
}

// acceptOne takes a connection from the queue; -1 when it is empty or cannot be read.
func acceptOne(listener int) int {
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		switch err {
		case nil:
			return fd
		case syscall.EINTR, syscall.ECONNABORTED: // its client has gone again
			continue
		}
		return -1
	}
}

func connOf(fd int) (*net.TCPConn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// HasUnread reports whether a client's bytes wait in the kernel's receive buffer. It is false on other systems.
func HasUnread(nc net.Conn) (has bool) {
	if c, ok := nc.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				n, _, _ := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
				has = n > 0
			})
		}
	}
	return has
}
