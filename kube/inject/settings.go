package inject

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Resolve returns the settings of an agent in the pod: from the MeshConfig's text, then the pod's annotations, then env
// in the form of os.Environ. The error lists all problems; the settings are never nil.
func Resolve(mesh string, annotations map[string]string, env []string) (*meshconfig.Settings, error) {
	return resolve(mesh, meshconfig.Input{Annotations: annotations, Env: env})
}

func resolve(mesh string, in meshconfig.Input) (*meshconfig.Settings, error) {
	if err := checkAnnotations(in.Annotations); err != nil {
		in.Annotations = nil
		settings, _ := resolve(mesh, in)
		return settings, err
	}
	if mesh != "" {
		in.MeshFile, in.ReadFile = meshconfig.DefaultMeshFile, func(string) ([]byte, error) { return []byte(mesh), nil }
	}
	return meshconfig.Resolve(in)
}

// SettingsOf returns the settings that a manifest shows of an agent: the MeshConfig's, then those of the pod's
// annotations, then the container's literal variables and its flags, or those of its hook without an agent. agent is
// nil for one that is not injected yet.
func SettingsOf(mesh string, annotations map[string]string, agent *corev1.Container) (*meshconfig.Settings, error) {
	var env environment
	env.setOwn(annotations)
	if agent == nil {
		return Resolve(mesh, annotations, env.pairs())
	}
	for _, v := range agent.Env {
		if v.ValueFrom == nil {
			env.set(v.Name, v.Value)
		}
	}
	arguments, isAgent := pod.AgentArguments(agent)
	if !isAgent {
		arguments, _ = pod.WaitFlags(pod.HookOf(agent))
	}
	flags := map[string]meshconfig.Flag{}
	for _, s := range meshconfig.Table() {
		if value := pod.Argument(arguments, "--"+s.Flag); value != "" && s.Flag != "" {
			flags[s.Name] = meshconfig.Flag{Name: "--" + s.Flag, Text: value}
		}
	}
	return resolve(mesh, meshconfig.Input{Annotations: annotations, Env: env.pairs(), Flags: flags})
}

// Limits of annotations, in bytes. Kubernetes checks its own limit only after the webhooks.
const (
	maxAnnotations = 256 << 10 // all annotations together, Kubernetes' own limit
	maxProxyConfig = 32 << 10
)

// checkAnnotations refuses annotations that are expensive to parse: YAML that is too large for a ProxyConfig, and
// aliases, with which a short text expands to a long one.
func checkAnnotations(annotations map[string]string) error {
	all := 0
	for name, value := range annotations {
		all += len(name) + len(value)
	}
	if all > maxAnnotations {
		return fmt.Errorf("the annotations have %d bytes; Kubernetes allows %d", all, maxAnnotations)
	}
	const name = annotationProxyConfig
	config := annotations[name]
	if len(config) > maxProxyConfig {
		return fmt.Errorf("annotation %s has %d bytes; the limit is %d", name, len(config), maxProxyConfig)
	}
	if !strings.Contains(config, "&") {
		return nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(config), &root); err != nil {
		return nil // the parser reports the error
	}
	if hasAlias(&root) {
		return fmt.Errorf("annotation %s has YAML aliases (*name): write the values instead", name)
	}
	return nil
}

func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

// own are lastcall's annotations that set a variable of the agent.
var own = []struct{ annotation, variable string }{
	{pod.AnnotationMinimumDrain, meshconfig.VariableMinimumDrain},
	{annotationQuietTime, meshconfig.VariableQuietTime},
	{annotationIdleGrace, meshconfig.VariableIdleGrace},
	{annotationMargin, meshconfig.VariableMargin},
	{annotationCompat, meshconfig.VariableCompat},
	{annotationRestartWait, meshconfig.VariableRestartWait},
}

// setOwn sets their variables.
func (e *environment) setOwn(annotations map[string]string) {
	for _, o := range own {
		if value := annotations[o.annotation]; value != "" {
			e.set(o.variable, value)
		}
	}
}

// AnnotationOf is lastcall's annotation that sets a variable of the agent; empty if there is none.
func AnnotationOf(variable string) string {
	for _, o := range own {
		if o.variable == variable {
			return o.annotation
		}
	}
	return ""
}

// settle computes the effective settings and the environment that passes them to the agent. They are resolved twice:
// from the pod's own settings, to see which ones aliases and the platform may set; and from the agent's environment, to
// check that the agent accepts them.
func (j *injection) settle() error {
	annotations := j.pod.Annotations
	configured, err := Resolve(j.MeshConfig, annotations, proxyConfigOf(j.pod))
	if err != nil { // perhaps because of another version's PROXY_CONFIG, which is not the user's
		configured, err = Resolve(j.MeshConfig, annotations, nil)
	}
	if err != nil {
		return err
	}
	env := &j.env
	if text := configured.ProxyConfig(); text != "" {
		env.set(meshconfig.VariableProxyConfig, escape(text))
	}
	metadata := configured.Metadata
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		switch value := metadata[name]; {
		case strings.ContainsAny(name, "=\x00") || name == "":
			j.note("proxyMetadata %q is not a valid variable name: ignored", name)
		case name == meshconfig.VariableGracePeriod: // below
		default:
			env.set(name, value) // with $(NAME) expanded, as in Istio
		}
	}
	env.setOwn(annotations)
	if err := j.readAppEnd(); err != nil {
		return err
	}
	if err := j.allowStreams(configured); err != nil {
		return err
	}
	grace := pod.GraceOf(&j.pod.Spec)
	if configured.GracePeriod.IsSet() {
		if configured.GracePeriod.Value > grace {
			j.note("%s %v is more than the pod's terminationGracePeriodSeconds %v, which is used instead",
				meshconfig.VariableGracePeriod, configured.GracePeriod.Value, grace)
		}
		grace = min(grace, configured.GracePeriod.Value)
	}
	grace = j.aliases(grace, configured.MinimumDrain.IsSet())
	if text := annotations[pod.AnnotationMinimumDrain]; text != "" {
		env.set(meshconfig.VariableMinimumDrain, text)
	}
	env.set(meshconfig.VariableGracePeriod, strconv.Itoa(int(grace/time.Second)))
	serves := slices.ContainsFunc(probed(&j.pod.Spec), func(c *corev1.Container) bool { return len(c.Ports) > 0 })
	if isJob(j.pod, j.Options) && !serves { // it waits for no clients
		env.setDefault(meshconfig.VariableMinimumDrain, configured.MinimumDrain.IsSet(), "0s")
		env.setDefault(meshconfig.VariableQuietTime, configured.QuietTime.IsSet(), "0s")
	}
	if err := j.resolveEnv(); err != nil || !j.keepSleeps() {
		return err
	}
	return j.resolveEnv()
}

// resolveEnv computes the settings of the environment so far.
func (j *injection) resolveEnv() (err error) {
	j.settings, err = Resolve(j.MeshConfig, j.pod.Annotations, j.env.pairs())
	return err
}

const (
	// longestStreams bounds annotationStreams.
	longestStreams = 24 * time.Hour

	// streamsMargin is the last call of such pods if they do not set it: a slow model takes seconds for a token, and a
	// stream ends with an error event only between two of them.
	streamsMargin = 5 * time.Second
)

// allowStreams makes the grace period as long as a response needs that begins at the end of the draining phase. A
// longer one stays.
func (j *injection) allowStreams(configured *meshconfig.Settings) error {
	text := j.pod.Annotations[annotationStreams]
	if text == "" {
		return nil
	}
	longest, err := time.ParseDuration(text)
	if err != nil || longest < time.Second || longest > longestStreams {
		return fmt.Errorf("annotation %s is %q: must be the duration of the longest response, 1s to %v, such as 10m",
			annotationStreams, text, longestStreams)
	}
	j.env.setDefault(meshconfig.VariableMargin, configured.Margin.IsSet(), streamsMargin.String())
	if err := j.resolveEnv(); err != nil {
		return err
	}
	s := j.settings
	needs := s.MinimumDrain.Value + s.QuietTime.Value + longest + s.Margin.Value
	if pod.GraceOf(&j.pod.Spec) < needs {
		j.pod.Spec.TerminationGracePeriodSeconds = new(int64((needs + time.Second - 1) / time.Second))
	}
	j.note("%s %s: a response that begins when the draining phase ends has the time to end; "+
		"terminationGracePeriodSeconds is %.0f", annotationStreams, text, pod.GraceOf(&j.pod.Spec).Seconds())
	return nil
}

// aliases reads the settings of other meshes and returns the time for the pod's termination: they can shorten grace but
// not extend it, because SIGKILL comes at its end. Istio's own setting of the minimum drain, if the pod has it, has
// precedence.
func (j *injection) aliases(grace time.Duration, isMinimumSet bool) time.Duration {
	for _, name := range []string{pod.LinkerdGrace, pod.KumaDrain, pod.ConsulGrace} {
		text, isSet := j.pod.Annotations[name]
		isOff := j.pod.Annotations["consul.hashicorp.com/enable-sidecar-proxy-lifecycle"] == "false"
		if !isSet || name == pod.ConsulGrace && isOff {
			continue
		}
		limit, ok := pod.MeshTimer(name, text)
		switch {
		case !ok:
			j.note("ignoring %s: %q is not a duration", name, text)
		case limit < time.Second:
			j.note("ignoring %s %s: lastcall exits as soon as no request is in flight", name, text)
		case limit >= grace:
			j.note("ignoring %s %s: the drain ends before the grace period of %v in any case", name, text, grace)
		default:
			grace = limit.Round(time.Second)
			j.note("using %s: the drain lasts at most %v", name, grace)
		}
	}
	if text, isSet := j.pod.Annotations[pod.LinkerdWait]; isSet {
		wait, ok := pod.MeshTimer(pod.LinkerdWait, text)
		switch {
		case !ok:
			j.note("ignoring %s: %q is not a duration", pod.LinkerdWait, text)
		case isMinimumSet:
			j.note("ignoring %s: %s is set", pod.LinkerdWait, meshconfig.VariableMinimumDrain)
		case wait >= grace:
			j.note("ignoring %s %v: it must be shorter than the grace period of %v, or no time would remain for the drain",
				pod.LinkerdWait, wait, grace)
		default:
			j.env.set(meshconfig.VariableMinimumDrain, wait.String())
			j.note("using %s as %s %v", pod.LinkerdWait, meshconfig.VariableMinimumDrain, wait)
		}
	}
	return grace
}

// readAppEnd passes it to the agent, or to the hook of a pod without one.
func (j *injection) readAppEnd() error {
	end, why, err := AppEndOf(j.pod, j.Learned)
	if err != nil || end == drain.AppAuto {
		return err
	}
	j.env.set(meshconfig.VariableApp, end.String())
	isGuess := j.pod.Annotations[annotationApp] == "" && j.Learned.App == drain.AppAuto
	if isGuess && len(TLSPorts(j.pod)) == 0 { // nothing that its owner has to know
		return nil
	}
	consequence := "it gets SIGTERM while its own TLS and other connections that are passed through are still open"
	if end == drain.AppExits {
		consequence = "connections that are passed through hold it until the last call"
	}
	j.note("the app %s at SIGTERM (%s): %s", end, why, consequence)
	return nil
}

// AppEndOf returns the app's behaviour at SIGTERM, and its source: the annotation, earlier terminations, or the server.
func AppEndOf(pod *corev1.Pod, learned Learned) (end drain.AppEnd, why string, err error) {
	switch end, err = drain.ParseAppEnd(pod.Annotations[annotationApp]); {
	case err != nil:
		return end, "", fmt.Errorf("annotation %s is %q: must be %s, %s or %s",
			annotationApp, pod.Annotations[annotationApp], drain.AppFinishes, drain.AppExits, drain.AppAuto)
	case end != drain.AppAuto:
		return end, "annotation " + annotationApp, nil
	case learned.App != drain.AppAuto:
		return learned.App, cmp.Or(learned.Why, "earlier terminations of the workload"), nil
	case pod.Annotations[annotationApp] == drain.AppAuto.String():
		return drain.AppAuto, "", nil
	}
	if servers := finishing(pod); len(servers) > 0 {
		return drain.AppFinishes, "known of " + strings.Join(servers, ", "), nil
	}
	return drain.AppAuto, "", nil
}

// TLSPorts are the ports of a pod's apps whose TLS seems to be the app's own: lastcall passes it through and does not
// see its requests. Ports are recognized by their names, or else by their numbers.
func TLSPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range apps(&pod.Spec) {
		for _, p := range c.Ports {
			name := meshconfig.PortProtocol(p.Name)
			isTLS := meshconfig.IsTLSPort(name) || name == "" && (p.ContainerPort == 443 || p.ContainerPort == 8443)
			if isTCP(p) && isTLS {
				out = append(out, p)
			}
		}
	}
	return out
}

// OpaqueEnd describes the end of connections to a port with TLS of the app's own; empty if the app finishes by itself.
func OpaqueEnd(pod *corev1.Pod, learned Learned) string {
	end, why, err := AppEndOf(pod, learned)
	switch {
	case err != nil || end == drain.AppFinishes:
		return ""
	case end == drain.AppExits:
		return "open connections hold the app until the last call, which cuts them: it exits at SIGTERM (" + why + ")"
	}
	return "open connections hold the app until the last call, which cuts them: what it does at SIGTERM is unknown"
}

// finishing names the pod's apps if all of those that serve are known to finish at their stop signals. Apps without a
// port do not count.
func finishing(p *corev1.Pod) []string {
	var out []string
	for _, c := range apps(&p.Spec) {
		signal, _ := pod.StopSignal(c)
		reaction, server := pod.Reacts(&p.Spec, c, signal, true)
		switch {
		case reaction == podend.Finishes:
			out = append(out, server+" at "+signal)
		case slices.ContainsFunc(c.Ports, isTCP):
			return nil
		}
	}
	return out
}
