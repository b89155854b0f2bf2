package inject

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// autoImage is the image of a container that a user writes to customize what Istio's injector adds under its name.
const autoImage = "auto"

// Istio's annotations that decide about its sidecar.
const (
	istioStatusPort = "status.sidecar.istio.io/port"
	istioMode       = "sidecar.istio.io/interceptionMode"
)

// addIstio leaves the traffic to Istio's sidecar. The apps' hooks watch its Envoy and delay the SIGTERM until no
// request is in flight; they never drain it, because the kubelet also runs them when one container restarts.
// istio-proxy's own hook begins the drain: Istio's in a native sidecar, lastcall's in a classic one.
func (j *injection) addIstio() error {
	if j.pod.Annotations[annotationPreStop] == preStopNone {
		return unableError{"annotation " + annotationPreStop + " is none, " +
			"and next to Istio's sidecar the preStop hooks are all that lastcall adds"}
	}
	j.addHooks(j.envoyHook)
	j.hookIstioProxy()
	if !j.equipHooks() {
		return nil
	}
	return j.exportStats()
}

// envoyHook is the hook of an app next to Istio's Envoy. Containers without a port get it too: Envoy shows the activity
// of the whole pod. A container whose ports all bypass Envoy is watched by its sockets.
func (j *injection) envoyHook(c *corev1.Container) *corev1.LifecycleHandler {
	ports, plane := j.portsOf(c), []string{"--envoy", j.istioAdmin()}
	mode, _ := j.settings.Proxy["interceptionMode"].(string)
	var past []watched
	for _, p := range ports {
		if bypasses(j.pod, mode, p.port) {
			past = append(past, p)
		}
	}
	switch {
	case len(past) == 0:
	case len(past) == len(ports):
		j.note("container %s: Istio does not capture its ports, so its preStop watches their sockets instead of Envoy",
			c.Name)
		j.noteOpaque(c, ports)
		plane = nil
	default:
		j.note("container %s: Istio does not capture port %s, whose connections do not delay the SIGTERM; "+
			"another port of the container is captured, and only Envoy is watched", c.Name, past[0])
	}
	return j.planeHook(c, plane, ports)
}

// istioAdmin is the address of Envoy's admin API.
func (j *injection) istioAdmin() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(j.settings.AdminPort.Value))
}

// agentPort is the port of pilot-agent's status server, 0 if it has none.
func (j *injection) agentPort() int {
	if text, isSet := j.pod.Annotations[istioStatusPort]; isSet {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil {
			return int(port)
		}
	}
	return j.settings.StatusPort.Value
}

// hookIstioProxy gives istio-proxy the hook that begins the drain. If the injector has not run yet, its form is
// unknown: the webhook is called again, and for a manifest the form is the one that is set.
func (j *injection) hookIstioProxy() {
	spec := &j.pod.Spec
	proxy := pod.Find(spec, pod.IstioProxy)
	isGateway := proxy != nil && len(apps(spec)) == 0 // never native
	switch {
	case proxy != nil && (proxy.Image != autoImage || isGateway):
	case !j.Offline:
		return
	case j.sidecar != Classic:
		j.note("istio-proxy is expected to be a native sidecar; "+
			"if Istio injects a classic one, set annotation %s: classic, which gives it a preStop hook too", annotationSidecar)
		return
	case proxy == nil:
		auto := corev1.Container{Name: pod.IstioProxy, Image: autoImage, ImagePullPolicy: corev1.PullIfNotPresent}
		spec.Containers = append(spec.Containers, auto)
		proxy = &spec.Containers[len(spec.Containers)-1]
		j.note("container %s with image %s customizes the classic sidecar of Istio's injector, "+
			"without which the pod cannot start", pod.IstioProxy, autoImage)
	}
	own := pod.HookOf(proxy)
	var hook *corev1.LifecycleHandler
	isFree := j.isReplaceable(proxy)
	switch {
	case pod.IsNative(proxy) && (isFree || pod.IsPilotDrain(own)) &&
		!slices.Contains(pod.DebugPorts(), j.agentPort()):
		hook = j.proxyHook(proxy)
		j.note("Istio's preStop of the native %s cannot work with status port %d, "+
			"which pilot-agent request refuses: lastcall's drains Envoy instead", pod.IstioProxy, j.agentPort())
	case pod.IsNative(proxy) && pod.IsPilotDrain(own):
		return
	case pod.IsNative(proxy) && isFree:
		// A lifecycle in the pod's manifest replaces Istio's (Istio's injection templates, 1.31). Without its preStop the
		// drain would begin after the apps have ended.
		hook = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{"pilot-agent", "request", "--debug-port=" + strconv.Itoa(j.agentPort()), "POST", "drain"},
		}}
		j.note("the native %s lacked Istio's preStop, which was restored: "+
			"otherwise its drain would begin only after the app has ended", pod.IstioProxy)
	case pod.IsNative(proxy):
		j.note("the native %s keeps a preStop that is not Istio's: "+
			"Envoy does not ask clients to close their connections until the app has ended; %s: replace restores Istio's",
			pod.IstioProxy, annotationPreStop)
		return
	case isFree:
		hook = j.proxyHook(proxy)
		if sleep := pod.ReadHook(spec, proxy); sleep.OnlySleeps() && j.pod.Annotations[annotationPreStop] == "" {
			j.noteReplaced(proxy, sleep.Duration)
		}
	default:
		j.note("%s keeps its own preStop: Envoy exits when that hook and its own drain have ended, "+
			"even if requests are in flight; with %s: replace it exits after the last one",
			pod.IstioProxy, annotationPreStop)
		if value, _ := pod.Variable(proxy, meshconfig.VariableExitOnZero); value == "true" {
			j.note("%s: an idle client holds %s until SIGKILL; "+
				"remove the variable, or set %s: replace", meshconfig.VariableExitOnZero, pod.IstioProxy, annotationPreStop)
		}
		return
	}
	pod.SetHook(proxy, hook)
}

// proxyHook is the hook of a classic istio-proxy: it begins the drain and returns when the apps have ended. The report
// is in the apps' termination messages, if one of them has it.
func (j *injection) proxyHook(proxy *corev1.Container) *corev1.LifecycleHandler {
	plane := []string{"--envoy", j.istioAdmin()}
	if port := j.agentPort(); port != 0 {
		plane = append(plane, "--pilot-agent", strconv.Itoa(port))
	}
	plane = append(plane, "--sidecar")
	var ports []watched
	isReported := false
	for _, c := range apps(&j.pod.Spec) {
		ports = append(ports, watchedPorts(c)...)
		hook := pod.HookOf(c)
		isReported = isReported || isPlaneHook(hook) && slices.Contains(hook.Exec.Command, "--report")
	}
	if isReported {
		proxy = nil
	}
	return j.waitCommand(proxy, plane, sortWatched(ports))
}

// bypasses reports whether Istio does not redirect the connections to a port of the app: by the arguments of the init
// container that redirects, or else by the pod's annotations. mode is the ProxyConfig's interception mode.
func bypasses(p *corev1.Pod, mode string, port uint16) bool {
	in := capture.Input{Annotations: p.Annotations, Flags: map[string]string{}}
	if mode != "" && p.Annotations[istioMode] == "" {
		in.Flags["mode"] = mode
	}
	for _, name := range []string{"istio-init", "istio-validation"} {
		c := pod.Find(&p.Spec, name)
		for i := 0; c != nil && i+1 < len(c.Args); i++ {
			switch c.Args[i] {
			case "-b":
				in.Flags["include-inbound-ports"] = c.Args[i+1]
			case "-d":
				in.Flags["exclude-inbound-ports"] = c.Args[i+1]
			}
		}
	}
	c, _ := capture.Resolve(in) // of values that lastcall lacks, such as TPROXY, the default
	isIncluded := c.IncludeInbound.All || slices.Contains(c.IncludeInbound.List, port)
	return c.Off || !isIncluded || slices.Contains(c.ExcludeInbound, port)
}

// Bypasses reports whether the clients of a port connect to the app itself, and not to the mesh's proxy.
func Bypasses(p *corev1.Pod, mesh string, port uint16) bool {
	return mesh == pod.MeshLinkerd && pod.LinkerdSkips(p, port) ||
		mesh == pod.MeshIstio && (isProxyless(p) || bypasses(p, "", port))
}

// isProxyless reports whether Istio's agent runs without Envoy, for a gRPC library that is its own data plane.
func isProxyless(p *corev1.Pod) bool {
	if strings.Contains(p.Annotations[pod.IstioTemplates], "grpc-") {
		return true
	}
	generator, _ := pod.Variable(pod.Find(&p.Spec, pod.IstioProxy), "ISTIO_META_GENERATOR")
	return generator == "grpc"
}

// proxyConfigOf is the PROXY_CONFIG that Istio's injector has written, in the form of os.Environ: the mesh's settings,
// which are nowhere else in the pod.
func proxyConfigOf(p *corev1.Pod) []string {
	text, _ := pod.Variable(pod.Find(&p.Spec, pod.IstioProxy), meshconfig.VariableProxyConfig)
	if text = strings.TrimSpace(unescape(text)); text == "" {
		return nil
	}
	return []string{meshconfig.VariableProxyConfig + "=" + text}
}

// drainStats are Envoy's statistics that show which connections are busy. Istio's Envoy has none of them by default.
var drainStats = []string{"downstream_rq_active", "downstream_cx_active", "downstream_rq_total", "downstream_cx_total"}

const (
	annotationProxyConfig   = meshconfig.AnnotationConfig
	annotationStatsSuffixes = "sidecar.istio.io/statsInclusionSuffixes"
)

// exportStats adds drainStats to the pod's settings, which pilot-agent reads when it starts. The annotation
// statsInclusionSuffixes replaces the list of proxyStatsMatcher if it is set. A proxyStatsMatcher in the pod's
// annotation replaces the mesh's, so it repeats it; before Istio's injector has run, the mesh's is unknown, and a
// webhook waits for its second call.
func (j *injection) exportStats() error {
	if list := j.pod.Annotations[annotationStatsSuffixes]; list != "" {
		j.pod.Annotations[annotationStatsSuffixes] = strings.Join(union(strings.Split(list, ","), drainStats), ",")
		return nil
	}
	if len(union(j.settings.StatsSuffixes.Value, drainStats)) == len(j.settings.StatsSuffixes.Value) {
		return nil
	}
	if proxy := pod.Find(&j.pod.Spec, pod.IstioProxy); !j.Offline && (proxy == nil || proxy.Image == autoImage) {
		return nil
	}
	mesh, err := Resolve(j.MeshConfig, nil, proxyConfigOf(j.pod))
	if err != nil {
		j.note("the mesh's proxyStatsMatcher is unknown: %v", err)
	}
	text, err := mergeStats(j.pod.Annotations[annotationProxyConfig], []statsList{
		{"inclusionPrefixes", mesh.StatsPrefixes.Value},
		{"inclusionSuffixes", union(mesh.StatsSuffixes.Value, drainStats)},
		{"inclusionRegexps", mesh.StatsRegexps.Value},
	})
	switch {
	case err != nil:
		return fmt.Errorf("annotation %s: %w", annotationProxyConfig, err)
	case len(text) > maxProxyConfig:
		return fmt.Errorf("annotation %s with the statistics that the drain needs has %d bytes; the limit is %d",
			annotationProxyConfig, len(text), maxProxyConfig)
	}
	j.pod.Annotations[annotationProxyConfig] = text
	return nil
}

// statsList is a list of proxyStatsMatcher.
type statsList struct {
	name  string // as in JSON; protobuf's name is valid too
	items []string
}

// union is a with the items of b that it lacks.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, item := range b {
		if !slices.ContainsFunc(out, func(had string) bool { return strings.TrimSpace(had) == item }) {
			out = append(out, item)
		}
	}
	return out
}

// mergeStats adds lists to the proxyStatsMatcher of a ProxyConfig in YAML, and keeps its other content.
func mergeStats(config string, lists []statsList) (string, error) {
	if len(manifest.Documents([]byte(config))) > 1 {
		return "", errors.New("it has a second YAML document: remove it")
	}
	root := map[string]any{}
	if err := yaml.Unmarshal([]byte(config), &root); err != nil {
		return "", err
	}
	if root == nil {
		root = map[string]any{}
	}
	name := spelling(root, "proxyStatsMatcher")
	matcher, ok := root[name].(map[string]any)
	if !ok && root[name] != nil {
		return "", fmt.Errorf("%s is not a map", name)
	}
	if matcher == nil {
		matcher = map[string]any{}
	}
	for _, l := range lists {
		if len(l.items) == 0 {
			continue
		}
		name := spelling(matcher, l.name)
		list, ok := matcher[name].([]any)
		if !ok && matcher[name] != nil {
			return "", fmt.Errorf("%s is not a list", name)
		}
		var had []string
		for _, item := range list {
			had = append(had, fmt.Sprint(item))
		}
		matcher[name] = union(had, l.items)
	}
	root[name] = matcher
	out, err := yaml.Marshal(root)
	return string(out), err
}

var capital = regexp.MustCompile(`[A-Z]`)

// spelling is the spelling of a field's name in a map: protobuf accepts its own, with underscores, too.
func spelling(fields map[string]any, name string) string {
	snake := capital.ReplaceAllStringFunc(name, func(c string) string { return "_" + strings.ToLower(c) })
	if _, ok := fields[snake]; ok {
		return snake
	}
	return name
}
