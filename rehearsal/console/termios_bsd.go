//go:build darwin || freebsd || netbsd || openbsd

package console

import "golang.org/x/sys/unix"

const termios = unix.TIOCGETA
