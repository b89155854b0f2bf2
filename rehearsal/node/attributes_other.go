//go:build !linux

package node

import "syscall"

// Without Linux's parent-death signal the processes survive if this process is killed; Close works the same.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit cannot wait without reaping here; Close then kills the group only if its leader still runs.
func awaitExit(int) {}
