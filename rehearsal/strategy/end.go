package strategy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// hook sets the containers' preStop hooks.
func (env *Env) hook(p *Pod) (err error) {
	app := node.Member{Container: p.App}
	sidecar := node.Member{Container: p.Sidecar, Native: p.Strategy.Sidecar.IsNative()}
	status := strconv.Itoa(p.statusPort)
	switch s := p.Strategy; {
	case s.Sidecar.IsHooks():
		if app.Hook, sidecar.Hook, err = env.hooksNextToIstio(p); err != nil {
			return err
		}
	case s.Sidecar.IsLastcall():
		app.Hook = env.joined(p, "wait", "--status-port", status)
	case s.Sidecar == IstioNative:
		args := []string{env.Programs.Lastcall, "request", "--status-port", status, "POST", "drain"}
		sidecar.Hook = env.execHook(p, hookLog, args...)
	case s.Netstat:
		sidecar.Hook = netstatLoop(p.App)
	case s.Sleep > 0:
		app.Hook, sidecar.Hook = node.Sleep(s.Sleep), node.Sleep(s.Sleep)
	case s.SocketWait:
		args := []string{"wait", "--ports", env.Service.port(p.AppPort)}
		if d := p.minimum; d > drain.DefaultMinimumDrain {
			args = append(args, "--minimum-drain", d.String())
		}
		app.Hook = env.joined(p, args...)
	}
	if app.Hook == nil {
		app.Hook = env.ownHook(p)
	}
	if p.members = []node.Member{app}; p.Sidecar != nil {
		p.members = append(p.members, sidecar)
	}
	return nil
}

// ownHook is the app's own hook, in the app's container; nil: none. In an exec hook's arguments, localhost and
// 127.0.0.1 with the containerPort stand for the app's address.
func (env *Env) ownHook(p *Pod) node.Hook {
	h, own, declared := env.Service.Hook, strconv.Itoa(p.AppPort), strconv.Itoa(env.Service.Port)
	switch {
	case h == nil:
		return nil
	case h.Path != "":
		return node.HTTPGet("http://" + node.Loopback(p.AppPort) + h.Path)
	case len(h.Exec) == 0:
		return node.Sleep(h.Sleep)
	}
	names := strings.NewReplacer("{port}", own,
		"localhost:"+declared, "127.0.0.1:"+own, "127.0.0.1:"+declared, "127.0.0.1:"+own)
	command := node.Command{
		Env: env.Service.variables(environment("PORT="+own), p.AppPort), Output: filepath.Join(p.dir, hookLog),
	}
	for _, a := range h.Exec {
		command.Args = append(command.Args, names.Replace(a))
	}
	return node.Exec{Node: env.Node, Command: p.App.Within(command)}
}

// joined is the hook that runs a command of lastcall, joined with the app's own as by injection.
func (env *Env) joined(p *Pod, args ...string) node.Hook {
	var variables []string
	if join, own := env.Service.Join, env.ownHook(p); join.Keeps && own != nil {
		return own
	} else if join.Runs {
		grace := drain.DefaultConfig()
		grace.GracePeriod = p.grace
		args = append(args, "--after", grace.LastCallAfter().String(), "--")
		switch own := own.(type) {
		case node.Exec:
			args, variables = append(args, own.Command.Args...), env.Service.variables(nil, p.AppPort)
		case node.HTTPGet:
			args = append(args, string(own))
		}
	}
	hook := env.execHook(p, hookLog, append([]string{env.Programs.Lastcall}, args...)...)
	hook.Command.Env = append(hook.Command.Env, variables...)
	return hook
}

// execHook is an exec preStop hook that writes to a file of the pod.
func (env *Env) execHook(p *Pod, out string, args ...string) node.Exec {
	command := node.Command{Args: args, Env: environment(p.granted()), Output: filepath.Join(p.dir, out)}
	return node.Exec{Node: env.Node, Command: command}
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

// Join is how lastcall's hook and the app's own become one. The zero value replaces the app's.
type Join struct {
	Keeps   bool          // the app's own stays, alone
	Runs    bool          // lastcall's waits, and then runs the app's own
	Minimum time.Duration // the shortest drain: a sleep that is replaced
}

// Members are the pod's containers, for a kubelet.
func (p *Pod) Members() []node.Member { return p.members }

// End is how a pod ended.
type End struct {
	Began        time.Time // the kubelet starts to terminate the pod
	App, Sidecar node.Ending
	AppExit      string // "exit 0", "SIGKILL"
	SidecarExit  string
}

// Gone is when wait4 has returned for the last container.
func (e End) Gone() time.Time {
	if e.Sidecar.Gone.After(e.App.Gone) {
		return e.Sidecar.Gone
	}
	return e.App.Gone
}

// Killed reports whether a container got SIGKILL.
func (e End) Killed() bool { return !e.App.Killed.IsZero() || !e.Sidecar.Killed.IsZero() }

// Terminate ends the pod by the kubelet's rules and returns when it is gone.
func (p *Pod) Terminate(ctx context.Context) End {
	e := End{Began: time.Now()}
	var remains sync.WaitGroup
	if p.appHook != "" {
		remains.Go(func() {
			<-p.App.Done()
			node.KillNamed(p.appHook) // the end of the app's PID namespace
			_ = os.Remove(p.appHook)
		})
	}
	defer remains.Wait()
	endings := node.Terminate(ctx, p.members, p.grace)
	e.App, e.AppExit = endings[0], p.App.Ending()
	if p.Sidecar != nil {
		e.Sidecar, e.SidecarExit = endings[1], p.Sidecar.Ending()
	}
	return e
}

// Report reads the sidecar's termination message; nil if there is none, because the sidecar was killed.
func (p *Pod) Report() (*drain.Report, error) {
	text, err := os.ReadFile(p.termination)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // no message is an answer
	case err != nil:
		return nil, err
	}
	r, ok := drain.ParseMessage(string(text))
	if !ok {
		return nil, fmt.Errorf("the termination message %s is no report: %q", p.termination, text)
	}
	return &r, nil
}

// netstatLoop is the preStop hook that proxies had before EXIT_ON_ZERO_ACTIVE_CONNECTIONS existed:
//
//	while [ $(netstat -plunt | grep tcp | grep -v envoy | wc -l | xargs) -ne 0 ]; do sleep 1; done
//
// It counts listening sockets (-l), so an app that has closed its own looks finished. In a pod netstat sees the pod's
// sockets; here the owning process identifies them.
func netstatLoop(app *node.Process) node.Hook {
	return node.Func(func(ctx context.Context) (err error) {
		n := 0
		ended := poll.Until(ctx, time.Second, func() bool {
			n, err = app.Listening()
			return err != nil || n == 0
		})
		return errors.Join(err, ended)
	})
}
