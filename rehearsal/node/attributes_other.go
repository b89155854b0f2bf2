//go:build !linux

package node

import "syscall"

// Without Linux's parent-death signal the processes survive if this process is killed; Close works the same.
func (c *Command) ways() []way {
	return []way{{&syscall.SysProcAttr{Setpgid: true}, NoInit}}
}

// awaitExit cannot wait without reaping here; Close then kills the group only if its leader still runs.
func awaitExit(int) {}
