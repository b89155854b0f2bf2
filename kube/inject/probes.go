package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Where the agent answers the app's probes and hooks, Istio's paths.
const (
	pathHealth    = "/app-health/"
	pathLifecycle = "/app-lifecycle/"

	preStopAnswer = "/prestopz"
)

// annotationRewrite is Istio's; false keeps the probes unchanged.
const annotationRewrite = "sidecar.istio.io/rewriteAppHTTPProbers"

// longestGRPCService is the longest service name that the agent supports, in bytes.
const longestGRPCService = 127

// hookTimeout is the limit of a postStart hook in seconds: Kubernetes has none, but the agent needs one.
const hookTimeout = 600

// maxVariable limits a variable of the sidecar, in bytes: Linux does not start a program with one of 128 KiB
// (MAX_ARG_STRLEN), and Kubernetes' escaping may make it longer.
const maxVariable = 100 << 10

// answersOf are a container's probes, and its httpGet hooks in the form of probes, by their paths at the agent.
func answersOf(c *corev1.Container) map[string]*corev1.Probe {
	path := pathHealth + c.Name
	all := map[string]*corev1.Probe{
		path + "/readyz": c.ReadinessProbe, path + "/livez": c.LivenessProbe, path + "/startupz": c.StartupProbe,
	}
	if l := c.Lifecycle; l != nil {
		for name, h := range map[string]*corev1.LifecycleHandler{preStopAnswer: l.PreStop, "/poststartz": l.PostStart} {
			if h != nil && h.HTTPGet != nil {
				handler := corev1.ProbeHandler{HTTPGet: h.HTTPGet}
				all[pathLifecycle+c.Name+name] = &corev1.Probe{ProbeHandler: handler, TimeoutSeconds: hookTimeout}
			}
		}
	}
	maps.DeleteFunc(all, func(_ string, p *corev1.Probe) bool { return p == nil })
	return all
}

// turnProbes redirects the probes and the httpGet hooks of the apps to the agent, so that they work with any capture
// and never count as traffic. earlier is the sidecar of an earlier injection, or nil.
func (j *injection) turnProbes(earlier *corev1.Container) error {
	probers := map[string]corev1.Probe{}
	if err := readProbes(earlier, probers); err != nil {
		return err
	}
	if j.pod.Annotations[annotationRewrite] == "false" {
		return nil
	}
	for _, c := range probed(&j.pod.Spec) {
		all, preStop := answersOf(c), pathLifecycle+c.Name+preStopAnswer
		if p := all[preStop]; p != nil {
			p.TimeoutSeconds = int32(min(pod.GraceOf(&j.pod.Spec).Seconds(), math.MaxInt32))
		}
		if pod.IsWaitGet(pod.HookOf(c)) || j.merges() && j.joinOf(c).Merge != MergeKeeps {
			delete(all, preStop)
		}
		for _, path := range slices.Sorted(maps.Keys(all)) {
			if turned, ok := j.turn(c, path, &all[path].ProbeHandler); ok {
				probers[path] = corev1.Probe{ProbeHandler: turned, TimeoutSeconds: all[path].TimeoutSeconds}
			}
		}
	}
	if len(probers) == 0 {
		return nil
	}
	text, err := probesText(probers)
	if err == nil {
		j.env.set(meshconfig.VariableProbes, text)
	}
	return err
}

// readProbes adds the probes that an agent answers, lastcall's or Istio's; those of the same path are replaced.
func readProbes(c *corev1.Container, to map[string]corev1.Probe) error {
	text, _ := pod.Variable(c, meshconfig.VariableProbes)
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(unescape(text)), &to); err != nil {
		return fmt.Errorf("read container %s's %s: %w", c.Name, meshconfig.VariableProbes, err)
	}
	return nil
}

// probesText is the variable for readProbes.
func probesText(probers map[string]corev1.Probe) (string, error) {
	text, err := json.Marshal(probers)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", meshconfig.VariableProbes, err)
	}
	if len(text) > maxVariable {
		return "", unableError{fmt.Sprintf(
			"the probes of its containers need %d bytes in a variable of the sidecar; the limit is %d", len(text), maxVariable)}
	}
	return escape(string(text)), nil
}

// turn redirects one probe to path on the status port, and returns the probe that the agent runs instead; false if the
// probe is unchanged.
func (j *injection) turn(c *corev1.Container, path string, h *corev1.ProbeHandler) (corev1.ProbeHandler, bool) {
	status := intstr.FromInt32(int32(j.settings.StatusPort.Value))
	// An exec probe runs in the app's own container. A probe at the status port is redirected already, or for the agent.
	if h.Exec != nil || h.HTTPGet != nil && h.HTTPGet.Port == status {
		return *h, false
	}
	p, why := j.probeOf(c, h)
	switch {
	case why != "":
		j.note("container %s: the handler for %s is unchanged: %s", c.Name, path, why)
		return p, false
	case h.HTTPGet != nil:
		h.HTTPGet.Path, h.HTTPGet.Port = path, status
		if h.HTTPGet.Scheme == corev1.URISchemeHTTPS {
			h.HTTPGet.Scheme = corev1.URISchemeHTTP // the agent uses TLS
		}
	case p == corev1.ProbeHandler{}:
		return p, false
	default:
		*h = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: status}}
	}
	return p, true
}

// probeOf is a container's handler as lastcall runs it, with a number for a named port. why is the reason why it
// cannot.
func (j *injection) probeOf(c *corev1.Container, h *corev1.ProbeHandler) (p corev1.ProbeHandler, why string) {
	h.DeepCopyInto(&p)
	resolve := func(host string, port *intstr.IntOrString) string {
		number, ok := j.resolve(c, *port)
		switch {
		case !ok:
			return "no container has a port named " + port.String()
		case host != "":
			return "its host is not the pod: " + host
		}
		*port = number
		return ""
	}
	switch {
	case p.HTTPGet != nil:
		why = resolve(p.HTTPGet.Host, &p.HTTPGet.Port)
	case p.TCPSocket != nil:
		why = resolve(p.TCPSocket.Host, &p.TCPSocket.Port)
	case p.GRPC != nil && p.GRPC.Service != nil && len(*p.GRPC.Service) > longestGRPCService:
		why = "its service's name is too long"
	case p.Exec != nil && len(p.Exec.Command) == 0:
		p.Exec = nil
	}
	return p, why
}

// resolve returns the number of a port, whose name may be defined in its own container or in another one.
func (j *injection) resolve(c *corev1.Container, port intstr.IntOrString) (intstr.IntOrString, bool) {
	if port.Type == intstr.Int {
		return port, port.IntVal > 0
	}
	if j.ports == nil {
		j.ports = map[[2]string]int32{}
		for _, c := range slices.Backward(pod.Containers(&j.pod.Spec)) {
			for _, p := range slices.Backward(c.Ports) {
				j.ports[[2]string{"", p.Name}], j.ports[[2]string{c.Name, p.Name}] = p.ContainerPort, p.ContainerPort
			}
		}
	}
	for _, container := range []string{c.Name, ""} {
		if number, known := j.ports[[2]string{container, port.StrVal}]; known {
			return intstr.FromInt32(number), true
		}
	}
	number := intstr.Parse(port.StrVal)
	return number, number.Type == intstr.Int && number.IntVal > 0
}

// withProbes adds the container's liveness and startup probe to a hook without a proxy, which by them distinguishes a
// restart of the container from the pod's end.
func (j *injection) withProbes(h *corev1.LifecycleHandler, c *corev1.Container) *corev1.LifecycleHandler {
	app := struct { // hook.App
		Liveness *corev1.Probe `json:"liveness,omitempty"`
		Startup  *corev1.Probe `json:"startup,omitempty"`
	}{j.appProbe(c, c.LivenessProbe), j.appProbe(c, c.StartupProbe)}
	if app.Liveness == nil && app.Startup == nil {
		return h
	}
	text, err := json.Marshal(app)
	if err != nil {
		j.note("container %s: its hook does not know the liveness probe: %v", c.Name, err)
		return h
	}
	h.Exec.Command = append(h.Exec.Command, "--app-probes", string(text))
	return h
}

// appProbe is a probe for a hook; nil if the container has none, or one that the hook cannot run.
func (j *injection) appProbe(c *corev1.Container, from *corev1.Probe) *corev1.Probe {
	if from == nil {
		return nil
	}
	p, why := j.probeOf(c, &from.ProbeHandler)
	if why != "" || p == (corev1.ProbeHandler{}) {
		return nil
	}
	return &corev1.Probe{ProbeHandler: p, TimeoutSeconds: from.TimeoutSeconds, PeriodSeconds: from.PeriodSeconds,
		FailureThreshold: from.FailureThreshold}
}

// Prometheus' annotations, and Istio's that keeps them unchanged.
const (
	prometheusScrape = "prometheus.io/scrape"
	prometheusPort   = "prometheus.io/port"
	prometheusPath   = "prometheus.io/path"
	prometheusScheme = "prometheus.io/scheme"
	prometheusMerge  = "prometheus.istio.io/merge-metrics"

	mergedPath = "/stats/prometheus"
)

// scrape is the pod's own, as the agent reads it.
type scrape struct {
	Scrape string `json:"scrape"`
	Path   string `json:"path"`
	Port   string `json:"port"`
}

// mergeMetrics redirects the pod's scrape to the agent, which scrapes the app. As in Istio, a pod without annotations
// gets scraped; unlike in Istio, a scrape by TLS is unchanged, because the agent does not use TLS.
func (j *injection) mergeMetrics() error {
	a := j.pod.Annotations
	status := strconv.Itoa(j.settings.StatusPort.Value)
	switch {
	case a[prometheusPort] == status: // already redirected
		return nil
	case a[prometheusMerge] == "false", a[prometheusMerge] == "" && !isMergeOn(j.MeshConfig):
		return nil
	case a[prometheusScheme] != "" && a[prometheusScheme] != "http":
		j.note("%s is %s: Prometheus scrapes the app directly; the sidecar's metrics are at :%s%s",
			prometheusScheme, a[prometheusScheme], status, mergedPath)
		return nil
	}
	if text, isSet := a[prometheusScrape]; isSet {
		if yes, err := strconv.ParseBool(text); err != nil || !yes {
			return nil
		}
		text, err := json.Marshal(scrape{"true", a[prometheusPath], a[prometheusPort]})
		if err != nil {
			return err
		}
		j.env.set(meshconfig.VariablePrometheus, escape(string(text)))
	}
	a[prometheusScrape], a[prometheusPort], a[prometheusPath] = "true", status, mergedPath
	return nil
}

// isMergeOn reads MeshConfig's enablePrometheusMerge; Istio's default is true.
func isMergeOn(text string) bool {
	var m struct {
		EnablePrometheusMerge *bool `json:"enablePrometheusMerge"`
	}
	const name = "enablePrometheusMerge"
	if !strings.Contains(text, name) {
		return true
	}
	if err := yaml.Unmarshal([]byte(text), &m); err != nil || m.EnablePrometheusMerge == nil {
		return !strings.Contains(text, name+": false") // a ConfigMap's wrapper, as users paste it
	}
	return *m.EnablePrometheusMerge
}
