package podtest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// way is how the containers of a pod are put together, and ended by the kubelet's rules (rehearsal/node).
type way struct {
	name   string
	native bool                 // the sidecar is an init container with restartPolicy Always
	args   []string             // of the sidecar
	env    []string             // of it
	app    func(*pod) node.Hook // the app's preStop; nil is none
	own    func(*pod) node.Hook // the sidecar's own preStop; nil is none
}

const (
	token        = "0af7651916cd43dd8448eb211c80319c"
	sidecarToken = "b7ad6b7169203331af7651916cd43dd8"
	grace        = 10 * time.Second
)

// The ways of lastcall, as lastcallctl inject puts them together, and with the hook by exec in place of httpGet.
var ours = []way{
	{name: "lastcall, native, exec", native: true, app: execWait},
	{name: "lastcall, native, exec, its own hook", native: true, args: []string{"--sidecar", "native"}, app: execWait, own: execWaitSidecar},
	{name: "lastcall, native, httpGet", native: true, args: []string{"--sidecar", "native"}, app: getWait, own: getWaitSidecar},
	{name: "lastcall, classic, exec", app: execWait},
	{name: "lastcall, classic, exec, known as such", args: []string{"--sidecar", "classic"}, app: execWait},
}

// unseen is a classic sidecar that cannot see the end of the app: an httpGet hook leaves nothing in the container.
var unseen = way{name: "lastcall, classic, httpGet", args: []string{"--sidecar", "classic"}, app: getWait}

// Istio's ways, played by lastcall: its default is to wait terminationDrainDuration (5 s, here 2 s) and go. Its native
// sidecar asks for the drain in its own preStop, and goes at SIGTERM.
var (
	istioClassic = way{name: "Istio, classic", args: []string{"--compat", "istio"}, env: []string{"PROXY_CONFIG=terminationDrainDuration: 2s"}}
	istioNative  = way{name: "Istio, native", native: true, args: istioClassic.args, env: istioClassic.env,
		own: func(p *pod) node.Hook { return p.exec("request", "POST", "drain") }}
)

// execWait is lastcall wait in the app's own container.
func execWait(p *pod) node.Hook {
	return node.Func(func(context.Context) error {
		return p.run(p.Pod, "hook", nil, nsenter, "--target", fmt.Sprint(p.latest.cmd.Process.Pid), "--pid", "--", program, "wait").wait(p.t)
	})
}

// nsenter runs a program in a container, of which a PID namespace is all that matters here.
const nsenter = "/usr/bin/nsenter"

// execWaitSidecar is the same in the sidecar's.
func execWaitSidecar(p *pod) node.Hook { return p.exec("wait", "--sidecar") }

func (p *pod) exec(args ...string) node.Hook {
	return node.Func(func(context.Context) error {
		return p.run(p.Pod, "hook", nil, append([]string{program}, args...)...).wait(p.t)
	})
}

// getWait is the kubelet's own request, from the node.
func getWait(p *pod) node.Hook { return p.getHook(token) }

// getWaitSidecar is the one for the sidecar's own hook.
func getWaitSidecar(p *pod) node.Hook { return p.getHook(sidecarToken) }

func (p *pod) getHook(token string) node.Hook {
	return node.Func(func(context.Context) error {
		code, body, err := p.get(p.Pod.TCP4(15020), "/wait/"+token)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// begin starts the sidecar, then the app.
func (p *pod) begin(w way, words lastWords) *app {
	p.t.Helper()
	p.startSidecar(append([]string{"LASTCALL_HOOK_TOKEN=" + token, "LASTCALL_SIDECAR_TOKEN=" + sidecarToken, fmt.Sprintf("TERMINATION_GRACE_PERIOD_SECONDS=%d", int(grace.Seconds()))}, w.env...), w.args...)
	return p.app(words)
}

// end ends the pod as the kubelet does.
func (p *pod) end(t *testing.T, w way, a *app) (app, sidecar node.Ending) {
	t.Helper()
	members := []node.Member{{Container: a}, {Container: p.sidecar, Native: w.native}}
	for i, hook := range []func(*pod) node.Hook{w.app, w.own} {
		if hook != nil {
			members[i].Hook = hook(p)
		}
	}
	endings := node.Terminate(t.Context(), members, grace)
	for i, e := range endings {
		if e.HookError != nil {
			t.Errorf("%s: the preStop of %s: %v", w.name, []string{"the app", "the sidecar"}[i], e.HookError)
		}
		if !e.Killed.IsZero() {
			t.Errorf("%s: %s had to be killed", w.name, []string{"the app", "the sidecar"}[i])
		}
	}
	return endings[0], endings[1]
}
