package service

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Pod is what a manifest states about the end of its pods.
type Pod struct {
	Workload   string         // "Deployment shop/web"; empty: no manifest
	Grace      time.Duration  // terminationGracePeriodSeconds
	Container  string         // the one that serves
	Port       int            // the containerPort that the app's own port takes the place of; 0: unknown
	Env        []string       // NAME=value
	Missing    []string       // variables whose values the manifest lacks
	PreStop    *Hook          // nil: none
	StopSignal syscall.Signal // zero: SIGTERM
	Join       strategy.Join  // what lastcall's injection does with PreStop
	ReadyPath  string         // of the readiness probe, if it is httpGet
	Notes      []string       // what the manifest has and the rehearsal leaves out
}

// DefaultGrace is terminationGracePeriodSeconds' default.
const DefaultGrace = 30 * time.Second

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

// hook returns the hook of a pod whose app listens on port. In an exec hook's arguments, localhost and 127.0.0.1 with
// the containerPort stand for the app's address.
func (p Pod) hook(n *node.Node, port int, log string) node.Hook {
	h := p.PreStop
	switch {
	case h == nil:
		return nil
	case len(h.Exec) > 0:
		args := make([]string, len(h.Exec))
		own := strconv.Itoa(port)
		names := strings.NewReplacer("{port}", own, "localhost:"+strconv.Itoa(p.Port), "127.0.0.1:"+own, "127.0.0.1:"+strconv.Itoa(p.Port), "127.0.0.1:"+own)
		for i, a := range h.Exec {
			args[i] = names.Replace(a)
		}
		return node.Exec{Node: n, Command: node.Command{Args: args, Output: log}}
	case h.Path != "":
		return node.HTTPGet("http://" + node.Loopback(port) + h.Path)
	}
	return node.Sleep(h.Sleep)
}

// ownHook is hook, or nil if there is none.
func (p Pod) ownHook() func(*node.Node, int, string) node.Hook {
	if p.PreStop == nil {
		return nil
	}
	return p.hook
}

// service is the pod's app for package strategy.
func (p Pod) service(isTCP bool) *strategy.Service {
	return &strategy.Service{Env: p.Env, StopSignal: p.StopSignal, ReadyPath: p.ReadyPath, IsTCP: isTCP, PreStop: p.ownHook(), Join: p.Join}
}
