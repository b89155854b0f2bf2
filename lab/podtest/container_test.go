package podtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// container is a process in a namespace, as node.Terminate ends it.
type container struct {
	name  string
	cmd   *exec.Cmd
	log   *logstest.Buffer // of both outputs
	done  chan struct{}
	ended time.Time // both written before done is closed
	err   error
}

// run starts a program in a namespace. It is killed at the end of the test.
func (p *pod) run(in *nettest.Namespace, name string, env []string, args ...string) *container {
	p.t.Helper()
	return launch(p.t, in, name, env, &exec.Cmd{Path: args[0], Args: args})
}

func launch(t *testing.T, in *nettest.Namespace, name string, env []string, cmd *exec.Cmd) *container {
	t.Helper()
	c := &container{name: name, cmd: cmd, log: &logstest.Buffer{}, done: make(chan struct{})}
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if err := in.Start(cmd); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		c.err, c.ended = cmd.Wait(), time.Now()
		close(c.done)
	}()
	t.Cleanup(func() {
		_ = c.Kill()
		<-c.done
		if t.Failed() {
			t.Logf("%s:\n%s", name, c.log)
		}
	})
	return c
}

// wait waits until it has ended by itself; an exit code but 0 is an error.
func (c *container) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-c.done:
		return c.err
	case <-time.After(patience):
		t.Fatalf("%s does not end:\n%s", c.name, c.log)
		return nil
	}
}

func (c *container) Terminate() error      { return c.signal(syscall.SIGTERM) }
func (c *container) Kill() error           { return c.signal(syscall.SIGKILL) }
func (c *container) Done() <-chan struct{} { return c.done }
func (c *container) Ended() time.Time      { <-c.done; return c.ended }

func (c *container) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", s, c.name, err)
	}
	return nil
}
