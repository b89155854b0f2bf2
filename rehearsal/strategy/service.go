package strategy

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// Service is what a manifest sets for the app.
type Service struct {
	Env        []string       // NAME=value; {port} stands for the app's port
	StopSignal syscall.Signal // zero: SIGTERM
	ReadyPath  string         // of its readiness probe by HTTP; empty: ready when the port is open
	IsTCP      bool           // the app's protocol is not HTTP

	// PreStop returns the app's own hook, which a strategy with a hook for the app replaces or joins; nil: none. The
	// hook's output goes to the file log.
	PreStop func(n *node.Node, port int, log string) node.Hook

	// Join is what lastcall's injection does with the app's own hook.
	Join Join
}

// Join is how lastcall's hook and the app's own become one. The zero value replaces the app's.
type Join struct {
	Keeps   bool          // the app's own stays, alone
	Runs    bool          // lastcall's runs the app's own first
	Minimum time.Duration // the shortest drain: a sleep that is replaced
}

// join returns how the hooks become one, if the app has its own.
func (s *Service) join() Join {
	if s == nil || s.PreStop == nil {
		return Join{}
	}
	return s.Join
}

// command is how the app is started.
func (s *Service) command(c node.Command, port int) node.Command {
	c.Env = s.variables(c.Env, port)
	c.StopSignal = s.StopSignal
	return c
}

// variables adds the manifest's to an environment.
func (s *Service) variables(env []string, port int) []string {
	env = slices.Clone(env)
	for _, v := range s.Env {
		env = append(env, strings.ReplaceAll(v, "{port}", strconv.Itoa(port)))
	}
	return env
}

// awaitReady is the readiness probe.
func (s *Service) awaitReady(ctx context.Context, p *node.Process, port int, log string) error {
	if s.ReadyPath == "" {
		return awaitPort(ctx, p, port, log)
	}
	return awaitReady(ctx, p, "http://"+node.Loopback(port)+s.ReadyPath, log)
}

// protocol is that of a sidecar's inbound listener.
func (s *Service) protocol() string {
	if s != nil && s.IsTCP {
		return "tcp"
	}
	return "http"
}

// port is the argument of lastcall wait --ports.
func (s *Service) port(port int) string {
	if s != nil && s.IsTCP {
		return strconv.Itoa(port) + "/tcp"
	}
	return strconv.Itoa(port)
}
