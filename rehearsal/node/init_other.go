//go:build !linux

package node

import (
	"os/exec"
	"syscall"
)

func asInit(*exec.Cmd) {}

// Within is the command itself: there are no namespaces here.
func (p *Process) Within(c Command) Command { return c }

func handlers(int, syscall.Signal) (handled bool, program string) { return true, "" }
