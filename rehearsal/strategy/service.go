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

// Service has a manifest's settings for the app.
type Service struct {
	Env        []string       // NAME=value; {port} stands for the app's port
	StopSignal syscall.Signal // zero: SIGTERM
	ReadyPath  string         // of its readiness probe by HTTP; empty: ready when the port is open
	IsTCP      bool           // the app's protocol is not HTTP
	Port       int            // the containerPort that the app's own port takes the place of; 0: unknown
	Hook       *Hook          // the app's own, which a strategy with a hook for the app replaces or joins; nil: none
	Join       Join           // the treatment of the hook by lastcall's injection
}

// Hook is a preStop hook; one of its fields is set.
type Hook struct {
	Sleep time.Duration
	Exec  []string
	Path  string // of httpGet
}

// String is the hook in the words of the manifest.
func (h *Hook) String() string {
	switch {
	case h == nil:
		return "no preStop hook"
	case len(h.Exec) > 0:
		return "preStop exec " + strings.Join(h.Exec, " ")
	case h.Path != "":
		return "preStop httpGet " + h.Path
	}
	return "preStop sleep " + strconv.Itoa(int(h.Sleep/time.Second))
}

// hook returns the own hook of an app that listens on port. In an exec hook's arguments, localhost and 127.0.0.1 with
// the containerPort stand for the app's address. Its output goes to the file log.
func (s *Service) hook(n *node.Node, port int, log string) node.Hook {
	h := s.Hook
	switch {
	case len(h.Exec) > 0:
		args := make([]string, len(h.Exec))
		own, declared := strconv.Itoa(port), strconv.Itoa(s.Port)
		names := strings.NewReplacer("{port}", own,
			"localhost:"+declared, "127.0.0.1:"+own, "127.0.0.1:"+declared, "127.0.0.1:"+own)
		for i, a := range h.Exec {
			args[i] = names.Replace(a)
		}
		return node.Exec{Node: n, Command: node.Command{Args: args, Output: log}}
	case h.Path != "":
		return node.HTTPGet("http://" + node.Loopback(port) + h.Path)
	}
	return node.Sleep(h.Sleep)
}

// Join is how lastcall's hook and the app's own become one. The zero value replaces the app's.
type Join struct {
	Keeps   bool          // the app's own stays, alone
	Runs    bool          // lastcall's waits, and then runs the app's own
	Minimum time.Duration // the shortest drain: a sleep that is replaced
}

// join returns how the hooks become one, if the app has its own.
func (s *Service) join() Join {
	if s == nil || s.Hook == nil {
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
