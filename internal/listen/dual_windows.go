package listen

import (
	"errors"
	"syscall"
)

// takeIPv4 undoes the option that package net has set for "tcp6", before the socket is bound.
func takeIPv4(_, _ string, raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(syscall.Handle(fd), syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0)
	})
	return errors.Join(failed, err)
}
