//go:build !linux

package node

import (
	"errors"
	"syscall"
)

// Without Linux's parent-death signal the processes survive if this process is killed; Close works the same.
func (c *Command) attributes() (*syscall.SysProcAttr, error) {
	if c.Namespaces {
		return nil, errors.ErrUnsupported
	}
	return &syscall.SysProcAttr{Setpgid: true}, nil
}

func (c *Command) startError(err error) error { return err }

// awaitExit cannot wait without reaping here; Close then kills the group only if its leader still runs.
func awaitExit(int) {}
