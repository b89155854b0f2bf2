package termination

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Of describes how a pod ends. A pod that asks for lastcall's injection is described as injected. Errors of the pod's
// own settings become notes; the settings concerned then have their defaults. It does not change its arguments.
func Of(p *corev1.Pod, o Options) *Termination {
	t := &Termination{}
	if o.Knative {
		p = pod.Knative(p)
		t.note(pod.KnativeNote)
	}
	if injected, done := inject.Pod(p, inject.Options{
		Image: "lastcall", EnvoyImage: "lastcall-envoy", Token: "0000000000000000", MeshConfig: o.MeshConfig,
		Namespace: o.Namespace, Sidecar: o.Istio, Offline: true,
	}); done.Outcome == inject.Injected {
		p = injected
	} else if done.Outcome == inject.LeftAlone {
		t.note("lastcall is requested, but leaves the pod alone: " + done.Reason)
	}
	t.Grace, t.GraceSource = pod.GraceOf(&p.Spec), "spec"
	if p.Spec.TerminationGracePeriodSeconds == nil {
		t.GraceSource = "default"
	} else if o.Knative {
		t.GraceSource = "timeoutSeconds"
	}
	r := reader{Termination: t, pod: p, options: o}
	r.serves, r.behind = pod.Serves(&p.Spec, o.Targets)
	r.readMesh()
	for _, c := range pod.Each(p.Spec.Containers) {
		r.add(c, false)
	}
	if r.Mesh != "" && r.proxy == nil {
		r.expect()
	}
	for _, c := range slices.Backward(pod.Each(p.Spec.InitContainers)) {
		if pod.IsNative(c) {
			r.add(c, true)
		}
	}
	r.readBlind()
	if r.expansion.IsCut {
		t.note(manifest.CutText)
	}
	if r.expected != nil && r.expected.Native { // injectors put theirs first, so that it stops last
		t.Containers = append(t.Containers, *r.expected)
	}
	for i := range t.Containers {
		t.Pod.Containers = append(t.Pod.Containers, t.Containers[i].Container)
	}
	if ports := inject.TLSPorts(p); t.HasLastcall && t.Mesh == "" && len(ports) > 0 {
		if ends := inject.OpaqueEnd(p, inject.Learned{}); ends != "" {
			port := strconv.Itoa(int(ports[0].ContainerPort))
			t.note("port " + port + " passes TLS through to the app: " + ends + " (docs/tls.md)")
		}
	}
	return t
}

// reader reads one pod.
type reader struct {
	*Termination
	pod      *corev1.Pod
	options  Options
	proxy    *corev1.Container // the mesh's, in the pod
	expected *Container        // the mesh's, not in the pod yet

	isWorkers bool // the timers are a worker's
	serves    []*corev1.Container
	behind    []*corev1.Container // those that serve
	expansion manifest.Expansion
}

// readMesh finds the carrier of the traffic. A pod with Istio's annotation belongs to Istio unless it has lastcall's
// own sidecar, which reads the same annotation.
func (r *reader) readMesh() {
	r.Mesh, r.proxy = pod.MeshOf(r.pod, r.options.Namespace)
	_, configured := r.pod.Annotations[meshconfig.AnnotationConfig]
	own := slices.ContainsFunc(pod.Containers(&r.pod.Spec), isAgent)
	if r.Mesh == "" && configured && !own && r.pod.Labels["sidecar.istio.io/inject"] != "false" {
		r.Mesh = pod.MeshIstio
		r.note("the annotation proxy.istio.io/config is taken as a sign that Istio injects its sidecar")
	}
}

// readBlind finds a classic sidecar of lastcall that does not see the apps' end: neither by their processes nor by a
// hook in each of them.
func (r *reader) readBlind() {
	spec := &r.pod.Spec
	isUnhooked := func(k Container) bool {
		return k.Role != podend.Proxy && !k.Native && k.Hook.Kind != podend.DrainHook
	}
	if pod.SharesProcesses(spec) || !slices.ContainsFunc(r.Containers, isUnhooked) {
		return
	}
	for i := range r.Containers {
		k := &r.Containers[i]
		isOwn := func(c corev1.Container) bool { return c.Name == k.Name && isAgent(&c) }
		agent := slices.IndexFunc(spec.Containers, isOwn)
		if k.Native || agent < 0 || k.Reaction != podend.Waits || k.Hook.Kind != podend.NoHook {
			continue
		}
		if arguments, _ := pod.AgentArguments(&spec.Containers[agent]); slices.Contains(arguments, "--capture") {
			k.Blind = true
			r.note(k.Name + " is a classic sidecar and does not learn when an app without lastcall's hook has ended: " +
				"the pod stays until the end of the grace period")
		}
	}
}

// isAgent reports whether a container runs lastcall's agent, or lastcall run around an app.
func isAgent(c *corev1.Container) bool {
	_, is := pod.AgentArguments(c)
	return is
}

// add adds a container of the pod.
func (r *reader) add(c *corev1.Container, native bool) {
	spec := &r.pod.Spec
	hook := pod.ReadHook(spec, c)
	out := Container{Container: podend.Container{Name: c.Name, Role: podend.App, Native: native, Hook: hook.Hook}}
	out.StopSignal, _ = pod.StopSignal(c)
	if failure := hook.Failure(); failure != "" {
		r.note("the preStop hook of " + c.Name + " fails: " + failure)
	}
	r.react(&out, c)
	switch {
	case isAgent(c):
		out.Role, out.Reaction = podend.Proxy, podend.Waits
		r.readLastcall(&out, c)
	case c == r.proxy:
		out.Role = podend.Proxy
		r.readProxy(&out, r.environ(c))
	case native && !slices.Contains(r.behind, c):
		out.Role = podend.Sidecar
	case slices.Contains(r.behind, c):
		out.Role = podend.Behind
	case slices.Contains(r.serves, c):
	case pod.IsWorker(c):
		out.Role = podend.Worker
		r.note(c.Name + " waits for its own signals (lastcall wait --until) and serves nobody: the request is its work")
	default:
		out.Role = podend.Aside
	}
	if stopper := hook.Stopper(); stopper != "" {
		r.note("the preStop hook of " + c.Name + " ends the app itself: " + stopper)
	}
	if out.Hook.Kind == podend.DrainHook && (!r.HasLastcall || r.isWorkers && !pod.IsWorker(c)) {
		r.readHook(&out, c)
		r.isWorkers = pod.IsWorker(c)
	}
	switch out.Hook.Kind {
	case podend.ScriptHook, podend.HTTPHook, podend.LoopHook:
		if !out.Hook.IsKnown && (out.Role != podend.Proxy || out.Hook.Kind != podend.LoopHook) {
			r.noteUnknown("the preStop hook of "+c.Name, out.Hook)
		}
	case podend.DrainHook:
		if own := out.Hook.Own; own != nil && !own.IsKnown {
			r.noteUnknown("the hook of "+c.Name+" that lastcall's runs", *own)
		}
	}
	r.Containers = append(r.Containers, out)
}

// react sets an app's reaction to its stop signal: what --app says, or what the manifest shows of its program.
func (r *reader) react(out *Container, c *corev1.Container) {
	if out.Reaction = r.options.App; out.Reaction != "" {
		if out.Hook.Stop == podend.Unsure {
			out.Hook.Stop = out.Reaction
		}
		return
	}
	var why string
	expanded := r.expansion.Container(*c)
	c = &expanded
	out.Reaction, why = pod.Reacts(&r.pod.Spec, c, out.StopSignal, true)
	switch out.Reaction {
	case podend.Finishes:
		for _, t := range pod.TimersOf(c) {
			out.Drain = t.Wait
			out.Settings = append(out.Settings, Setting{t.Name, t.Wait.String(), t.Source})
		}
	case podend.Exits:
		if process, _ := pod.Front(&r.pod.Spec, c, out.StopSignal); process != "" {
			r.note(why)
		}
	case podend.Ignores:
		if !out.Hook.Stops {
			r.note(why + ": the app runs until SIGKILL")
		}
	case podend.Reloads:
		r.note(why + ": " + c.Name + " runs until SIGKILL")
	}
}

func (t *Termination) noteUnknown(what string, h podend.Hook) {
	text := what + " takes at least " + h.Duration.String() + ", and "
	switch {
	case h.Most > 0:
		text += "at most " + h.Most.String()
	case h.Duration == 0:
		text = what + " takes a time that the manifest does not show"
	default:
		text += "for longer as the manifest does not show"
	}
	if h.MayStop {
		text += "; it may end the app"
	}
	t.note(text)
}

// settings are lastcall's in a container.
func (r *reader) settings(mesh string, annotations map[string]string, c *corev1.Container) *meshconfig.Settings {
	own := r.expansion.Container(*c)
	s, err := inject.SettingsOf(mesh, annotations, &own)
	if err != nil {
		r.note("lastcall's settings: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return s
}

// readLastcall takes over the settings of lastcall's agent.
func (r *reader) readLastcall(c *Container, from *corev1.Container) {
	s := r.settings(r.options.MeshConfig, r.pod.Annotations, from)
	timers := s.Drain()
	if _, isSet := pod.Variable(from, meshconfig.VariableGracePeriod); !s.GracePeriod.IsSet() &&
		(isSet || len(from.EnvFrom) > 0) { // from elsewhere
		timers.GracePeriod = r.Grace
	}
	r.SetDrain(timers)
	c.list(s)
	switch s.Mode() {
	case drain.Fixed:
		c.Reaction, c.Drain = podend.FixedDrain, s.TerminationDrain.Value
	case drain.IstioExitOnZero:
		c.Reaction, c.Drain = podend.PollsZero, s.MinimumDrain.Value
	}
}

// readHook takes over the settings of lastcall wait without an agent: the container's variables, then its flags.
func (r *reader) readHook(out *Container, c *corev1.Container) {
	s := r.settings("", nil, c)
	if !s.Margin.IsSet() {
		s.Margin.Value = min(timers.DefaultLeave, r.Grace/4)
	}
	flags, _ := pod.WaitFlags(pod.HookOf(c))
	timeout, _ := time.ParseDuration(pod.Argument(flags, "--timeout"))
	config := hook.Config(s, pod.AwaitsSignals(flags), timeout)
	config.Margin = s.Margin.Value
	s.MinimumDrain.Value, s.QuietTime.Value = config.MinimumDrain, config.QuietTime
	if pod.HasNoAgent(flags) {
		out.list(s)
	}
	r.SetDrain(config)
}

// list adds the settings that decide how lastcall's wait ends.
func (c *Container) list(s *meshconfig.Settings) {
	c.Settings = append(c.Settings,
		settingOf("MINIMUM_DRAIN_DURATION", s.MinimumDrain), settingOf("LASTCALL_QUIET_TIME", s.QuietTime),
		settingOf("LASTCALL_LAST_CALL_MARGIN", s.Margin), settingOf("TERMINATION_GRACE_PERIOD_SECONDS", s.GracePeriod))
}

func settingOf[T any](name string, v meshconfig.Value[T]) Setting {
	return Setting{name, fmt.Sprint(v.Value), v.Source.String()}
}

// environ are the literal variables of a container, in the form of os.Environ.
func (r *reader) environ(c *corev1.Container) []string {
	var out []string
	for _, e := range r.expansion.Container(*c).Env {
		if e.ValueFrom == nil {
			out = append(out, e.Name+"="+e.Value)
		}
	}
	return out
}

// isBypassed reports whether the mesh's proxy gets no connection to the ports for requests.
func (r *reader) isBypassed() (is bool) {
	for _, c := range r.serves {
		for _, p := range c.Ports {
			if !pod.IsForRequests(p.Name) {
				continue
			}
			if is = inject.Bypasses(r.pod, r.Mesh, uint16(p.ContainerPort)); !is {
				return false
			}
		}
	}
	return is
}

// Defaults of other meshes, see docs/linkerd.md and docs/other-meshes.md.
const (
	linkerdShutdownGrace = 120 * time.Second
	kumaDrainTime        = 30 * time.Second
	consulGracePeriod    = 30 * time.Second
	daprShutdown         = 5 * time.Second
)

// expect adds the proxy that the mesh's injector will add.
func (r *reader) expect() {
	if r.Mesh == pod.MeshAmbient {
		r.note("ztunnel on the node carries the traffic until the pod has ended: it neither cuts nor waits")
		return
	}
	c := Container{
		Container: podend.Container{Name: proxyNames[r.Mesh], Role: podend.Proxy,
			Hook: podend.Hook{Kind: podend.NoHook, IsKnown: true}},
		Assumed: true, StopSignal: "SIGTERM",
	}
	if c.Name == "" {
		return
	}
	switch r.Mesh {
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
	r.note(c.Name + " is assumed: the injector of " + r.Mesh + " adds it as " + form)
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
	if r.isBypassed() {
		c.Role = podend.Sidecar
		r.note(c.Name + " gets no connection to the app's ports: clients connect to the app itself")
	}
	switch r.Mesh {
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
