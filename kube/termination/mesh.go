package termination

import (
	"cmp"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Defaults of other meshes, see docs/linkerd.md and docs/other-meshes.md.
const (
	linkerdShutdownGrace = 120 * time.Second
	kumaDrainTime        = 30 * time.Second
	consulGracePeriod    = 30 * time.Second
	daprShutdown         = 5 * time.Second
)

// expect adds the proxy that the mesh's injector will add.
func (r *reader) expect() {
	if r.mesh == pod.MeshAmbient {
		r.note("ztunnel on the node carries the traffic until the pod has ended: it neither cuts nor waits")
		return
	}
	c := Container{
		Container: podend.Container{Name: proxyNames[r.mesh], Role: podend.Proxy,
			Hook: podend.Hook{Kind: podend.NoHook, IsKnown: true}},
		Assumed: true, StopSignal: Setting{"stop signal", "SIGTERM", "default"},
	}
	if c.Name == "" {
		return
	}
	switch r.mesh {
	case pod.MeshIstio:
		c.Native = r.istioForm() == inject.Native
		if c.Native {
			c.Hook = podend.Hook{Kind: podend.NotifyHook, IsKnown: true}
		}
	case pod.MeshLinkerd:
		c.Native = pod.LinkerdNative(r.pod) != "false"
		if d, ok := r.duration(pod.LinkerdWait); ok && !c.Native {
			c.Hook = podend.Hook{Kind: podend.SleepHook, Duration: d, IsKnown: true}
		}
	case "Kuma":
		c.Native = true
		c.Hook = podend.Hook{Kind: podend.NotifyHook, IsKnown: true}
	}
	r.readProxy(&c, nil)
	form := "an ordinary container"
	if c.Native {
		form = "a native sidecar"
	}
	r.note(c.Name + " is assumed: the injector of " + r.mesh + " adds it as " + form)
	if r.expected = &c; !c.Native {
		r.Containers = append(r.Containers, c)
	}
}

// proxyNames are the containers that injectors add.
var proxyNames = map[string]string{
	pod.MeshIstio: "istio-proxy", pod.MeshLinkerd: "linkerd-proxy",
	"Kuma": "kuma-sidecar", "Consul": "consul-dataplane", pod.MeshDapr: "daprd",
}

func (r *reader) istioForm() inject.Sidecar {
	return cmp.Or(inject.IstioForm(r.pod), r.options.Istio, inject.Native)
}

// readProxy describes how a mesh's proxy ends at its stop signal.
func (r *reader) readProxy(c *Container, env []string) {
	fixed := func(name string, d time.Duration) {
		source := "default"
		if configured, ok := r.duration(name); ok {
			d, source = configured, "annotation "+name
		}
		c.Reaction, c.Drain = podend.FixedDrain, d
		c.Settings = append(c.Settings, Setting{name, d.String(), source})
	}
	switch r.mesh {
	case pod.MeshIstio:
		r.readIstio(c, env)
	case pod.MeshLinkerd:
		fixed(pod.LinkerdGrace, linkerdShutdownGrace)
		c.Reaction = podend.Refuses
	case "Kuma":
		fixed(pod.KumaDrain, kumaDrainTime)
		if c.Native { // it has drained in its preStop, and exits once the app has gone
			c.Reaction = podend.Exits
		}
	case "Consul":
		fixed(pod.ConsulGrace, consulGracePeriod)
	case pod.MeshDapr:
		c.Role = podend.Sidecar // it calls the app; other clients connect to the app
		fixed(pod.DaprGrace, daprShutdown)
	default:
		c.Reaction, c.Drain = podend.FixedDrain, r.Grace
	}
}

// readIstio: the agent's default is the fixed drain. A native sidecar has drained since its preStop, and exits at its
// SIGTERM, which follows the app's end; so does one with a hook of lastcall.
func (r *reader) readIstio(c *Container, env []string) {
	s, err := inject.Resolve(r.options.MeshConfig, r.pod.Annotations, append([]string{"LASTCALL_COMPAT=istio"}, env...))
	if err != nil {
		r.note("Istio's settings: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	c.Settings = append(c.Settings, settingOf("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", s.ExitOnZero),
		settingOf("MINIMUM_DRAIN_DURATION", s.MinimumDrain),
		settingOf("terminationDrainDuration", s.TerminationDrain))
	switch {
	case c.Hook.Kind == podend.NotifyHook, c.Hook.Kind == podend.AppEndHook:
		c.Reaction = podend.Exits
	case s.Mode() == drain.Fixed:
		c.Reaction, c.Drain = podend.FixedDrain, s.TerminationDrain.Value
	default:
		c.Reaction, c.Drain = podend.PollsZero, s.MinimumDrain.Value
	}
}

// duration is the value of an annotation of a mesh.
func (r *reader) duration(name string) (time.Duration, bool) {
	return pod.MeshTimer(name, r.pod.Annotations[name])
}
