//go:build !linux

package node

import "syscall"

// Without Linux's parent-death signal, what is left when this process is
// killed lives on; Close is as thorough as there.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit has no portable way to wait without reaping; the group is then
// killed by Close only if its leader is still there.
func awaitExit(int) {}
