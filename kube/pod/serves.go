package pod

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// notRequests are words in the names of ports and Services to which no user's request goes. Clients of xDS and DNS
// connect again by themselves.
var notRequests = []string{
	"metric", "monitor", "monitoring", "prom", "prometheus", "health", "healthz", "probe", "webhook", "admission", "debug",
	"pprof", "profiling", "profiler", "admin", "live", "liveness", "livez", "ready", "readiness", "readyz", "xds", "dns",
}

// IsForRequests reports whether users' requests go to a port or Service with this name. It compares whole words, in the
// singular: a Service called delivery or promotions is one for requests.
func IsForRequests(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) })
	return !slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(notRequests, word) || slices.Contains(notRequests, strings.TrimSuffix(word, "s"))
	})
}

// Serves are the ordinary containers that clients' requests reach: those with the target ports of the pod's Services,
// or else with a port for requests, and those on which one of them depends. Proxies and lastcall are left out. In a pod
// that names no port it is all of them, or none next to a worker.
func Serves(spec *corev1.PodSpec, targets []intstr.IntOrString) (found, behind []*corev1.Container) {
	var all []*corev1.Container
	for _, c := range Each(spec.Containers) {
		if _, isAgent := AgentArguments(c); !isAgent && !IsProxy(spec, c) {
			all = append(all, c)
		}
	}
	isTarget := func(c *corev1.Container) bool {
		return slices.ContainsFunc(targets, func(t intstr.IntOrString) bool {
			port := PortOf(c, t)
			return port != 0 && hasNumber(c, strconv.Itoa(int(port)))
		})
	}
	for _, is := range []func(*corev1.Container) bool{isTarget, HasRequests} {
		for _, c := range all {
			if is(c) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	if len(found) == 0 && !slices.ContainsFunc(all, IsWorker) {
		found = all
	}
	for queue := slices.Clone(found); len(queue) > 0; queue = queue[1:] {
		for _, needed := range Needs(spec, queue[0]) {
			if !slices.Contains(behind, needed) && !slices.Contains(Needs(spec, needed), queue[0]) {
				behind, queue = append(behind, needed), append(queue, needed)
			}
		}
	}
	isBehind := func(c *corev1.Container) bool { return slices.Contains(behind, c) && !isTarget(c) }
	return slices.DeleteFunc(found, isBehind), behind
}

// Targets are the target ports of a Service that requests use.
func Targets(s *corev1.Service) (targets []intstr.IntOrString) {
	for _, p := range s.Spec.Ports {
		switch {
		case p.Protocol == corev1.ProtocolUDP || !IsForRequests(p.Name):
		case p.TargetPort == (intstr.IntOrString{}):
			targets = append(targets, intstr.FromInt32(p.Port))
		default:
			targets = append(targets, p.TargetPort)
		}
	}
	return targets
}

// Needs are the containers of the pod to which a container passes its requests, as far as the manifest shows it: it
// names their ports on loopback, or it is a web server before PHP-FPM. A native sidecar ends last, and is left out
// unless its own hook ends it.
func Needs(spec *corev1.PodSpec, c *corev1.Container) (needed []*corev1.Container) {
	text := settings(c)
	for i, other := range Containers(spec) {
		if i < len(spec.InitContainers) && (!IsNative(other) || !ReadHook(spec, other).Stops) {
			continue
		}
		isCGI := isNamed(other, "fpm") && (isNamed(c, "nginx") || isNamed(c, "httpd") || isNamed(c, "apache") || isNamed(c,
			"caddy"))
		if other.Name == c.Name || IsProxy(spec, other) {
			continue
		}
		isIn := func(port string) bool { return !hasNumber(c, port) && namesPort(text, port) }
		if isCGI || slices.ContainsFunc(portsOf(other), isIn) {
			needed = append(needed, other)
		}
	}
	return needed
}

// numbers matches what may be a port in an argument: after :, = or a space.
var numbers = regexp.MustCompile(`(?:^|[:=\s])([1-9][0-9]{1,4})(?:$|[^0-9.a-z])`)

// portsOf are the ports of a container, and the numbers in its arguments, which may be.
func portsOf(c *corev1.Container) (all []string) {
	for _, p := range c.Ports {
		all = append(all, strconv.Itoa(int(p.ContainerPort)))
	}
	for _, m := range numbers.FindAllStringSubmatch(strings.Join(slices.Concat(c.Command, c.Args), "\n"), -1) {
		all = append(all, m[1])
	}
	return all
}

// hasNumber reports whether a container itself declares a port.
func hasNumber(c *corev1.Container, port string) bool {
	return slices.ContainsFunc(c.Ports,
		func(p corev1.ContainerPort) bool { return strconv.Itoa(int(p.ContainerPort)) == port })
}

// settings are a container's arguments and variables.
func settings(c *corev1.Container) string {
	all := slices.Concat(c.Command, c.Args)
	for _, e := range c.Env {
		all = append(all, e.Value)
	}
	return strings.Join(all, "\n")
}

// namesPort reports whether a text has an address on loopback with the port.
func namesPort(text, port string) bool {
	lines := strings.Split(text, "\n") // host and port may be two variables
	if slices.Contains(lines, port) && (slices.Contains(lines, "127.0.0.1") || slices.Contains(lines, "localhost")) {
		return true
	}
	for _, host := range []string{"127.0.0.1:", "localhost:", "[::1]:"} {
		for _, after := range strings.Split(text, host)[1:] {
			if rest, ok := strings.CutPrefix(after, port); ok && (rest == "" || !unicode.IsDigit(rune(rest[0]))) {
				return true
			}
		}
	}
	return false
}

// isNamed reports whether a container's image or program has a word in its name.
func isNamed(c *corev1.Container, word string) bool {
	name, tag := split(c.Image)
	command := Program(c)
	return strings.Contains(path.Base(name), word) || strings.Contains(tag, word) ||
		len(command) > 0 && strings.Contains(path.Base(command[0]), word)
}
