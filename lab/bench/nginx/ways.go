package main

import (
	"context"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

const grace = 30 * time.Second // Kubernetes' default

// way is how a pod is stopped: the preStops of nginx and of the app behind it.
type way struct {
	name, words string
	nginx, app  func(*pod) node.Hook
}

var ways = []way{
	{name: "nothing", words: "no hook"},
	{name: "netstat", words: "netstat loop on the app, until nginx listens no more", app: netstatLoop},
	{name: "established", words: "netstat loop on both, until no connection is established", nginx: establishedLoop, app: establishedLoop},
	{name: "sleep", words: "`sleep 5` on both", nginx: sleep, app: sleep},
	{name: "wait", words: "`lastcall wait --ports` on both", nginx: wait, app: wait},
}

// netstatLoop is
//
//	while netstat -plnt | grep -q nginx; do sleep 1; done
//
// for the sockets of this pod's nginx.
func netstatLoop(p *pod) node.Hook {
	return node.Func(func(ctx context.Context) error {
		for {
			n, err := p.nginx.Listening()
			if err != nil || n == 0 {
				return err
			}
			if err := node.Sleep(time.Second).Run(ctx); err != nil {
				return err
			}
		}
	})
}

// establishedLoop is the same with netstat -tn | grep -q ESTABLISHED.
func establishedLoop(p *pod) node.Hook {
	return node.Func(func(ctx context.Context) error {
		for {
			n, err := node.Established()
			if err != nil || n[p.port] == 0 {
				return err
			}
			if err := node.Sleep(time.Second).Run(ctx); err != nil {
				return err
			}
		}
	})
}

func sleep(*pod) node.Hook { return node.Sleep(5 * time.Second) }

// wait waits for nginx's clients, also on the app: it is nginx's to end first.
func wait(p *pod) node.Hook {
	return node.Exec{Node: p.theatre.node, Command: node.Command{
		Args:   []string{filepath.Join(*bin, "lastcall"), "wait", "--ports", strconv.Itoa(p.port)},
		Env:    []string{"TERMINATION_GRACE_PERIOD_SECONDS=" + strconv.Itoa(int(grace/time.Second))},
		Output: filepath.Join(p.dir, "prestop.log"),
	}}
}

// stopSignal is what the runtime sends.
type stopSignal struct {
	name   string
	signal syscall.Signal
}

var signals = []stopSignal{
	{"SIGTERM: fast shutdown", syscall.SIGTERM},
	{"SIGQUIT: graceful shutdown (STOPSIGNAL of the nginx image)", syscall.SIGQUIT},
}

// container is a process with a stop signal of its own.
type container struct {
	*node.Process
	stop syscall.Signal
}

// Terminate sends the stop signal to PID 1.
func (c container) Terminate() error {
	if c.stop == syscall.SIGTERM {
		return c.Process.Terminate()
	}
	select {
	case <-c.Done():
		return nil
	default:
		return syscall.Kill(c.PID(), c.stop)
	}
}
