package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/worker"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// binary is the path of lastcall in the app's containers without a sidecar.
const binary = mountBinary + "/lastcall"

// addSockets gives each app with ports a preStop that watches their connections. An init container copies the binary,
// because the image may not even have a shell.
func (j *injection) addSockets() error {
	j.addHooks(func(c *corev1.Container) *corev1.LifecycleHandler {
		ports := j.portsOf(c)
		if len(ports) == 0 && !j.isWorker(c) {
			j.note("container %s lists no port and gets no preStop: set the ports with annotation %s", c.Name, annotationPorts)
			return nil
		}
		j.noteOpaque(c, ports)
		return j.planeHook(c, j.linkerdFlags(), ports)
	})
	j.hookMeshProxies()
	if !j.equipHooks() && pod.Find(&j.pod.Spec, containerCopy) == nil {
		return unableError{"no container without a preStop of its own lists a port, so there is nothing to watch: " +
			"set the ports with annotation " + annotationPorts + ", or a worker's signals with " + annotationUntil}
	}
	return nil
}

// hookMeshProxies delays the SIGTERM of a mesh's proxy that is an ordinary container until the apps' connections are
// idle: linkerd's refuses new ones as soon as it has it. A native one ends after the apps anyway.
func (j *injection) hookMeshProxies() {
	spec := &j.pod.Spec
	isHooked := false
	var ports []watched
	for _, c := range apps(spec) {
		isHooked = isHooked || isPlaneHook(pod.HookOf(c))
		ports = append(ports, j.portsOf(c)...)
	}
	if !isHooked {
		return
	}
	j.shortenLinkerdIdle(ports)
	for _, c := range pod.Each(spec.Containers) {
		if !pod.IsMeshProxy(spec, c) {
			continue
		}
		if !j.isReplaceable(c) {
			j.note("container %s keeps its own preStop: it must last as long as the apps' requests, %s at most",
				c.Name, pod.GraceOf(spec))
			continue
		}
		pod.SetHook(c, j.waitCommand(nil, j.linkerdFlags(), sortWatched(ports)))
	}
}

func (j *injection) noteOpaque(c *corev1.Container, ports []watched) {
	for _, p := range ports {
		if meshconfig.IsOpaquePort(p.protocol) && (j.linkerdFlags() == nil || !meshconfig.IsMuxedPort(p.protocol)) {
			j.note("container %s: connections of port %s count as busy as long as they are open, "+
				"because the kernel does not show their requests; set another protocol with annotation %s",
				c.Name, p, annotationPorts)
		}
	}
}

// equipHooks gives the containers with a hook that watches Envoy or sockets what it needs, and reports whether there is
// one. The node's address does count, though probes come from it: so do clients that a Service
// has sent over a node (externalTrafficPolicy: Cluster). A probe moves the end by the quiet time only.
func (j *injection) equipHooks() bool {
	spec, found := &j.pod.Spec, false
	for _, c := range pod.Containers(spec) {
		if isPlaneHook(pod.HookOf(c)) {
			found = true
			j.mountProgram(c)
			setDefault(c, meshconfig.VariableGracePeriod, j.env.get(meshconfig.VariableGracePeriod))
			setDefault(c, meshconfig.VariableApp, j.env.get(meshconfig.VariableApp))
		}
	}
	if !found {
		return false
	}
	addVolume(spec, binaryVolume)
	if pod.Find(spec, containerCopy) == nil {
		c := j.container(containerCopy, "copy", binary)
		c.VolumeMounts = []corev1.VolumeMount{{Name: volumeBinary, MountPath: mountBinary}}
		spec.InitContainers = slices.Insert(spec.InitContainers, 0, c)
	}
	return true
}

// binaryVolume has lastcall in it.
var binaryVolume = corev1.Volume{
	Name: volumeBinary, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
}

// mountProgram lets a container run it.
func (j *injection) mountProgram(c *corev1.Container) {
	if !mounts(c) {
		mount := corev1.VolumeMount{Name: volumeBinary, MountPath: mountBinary, ReadOnly: true}
		c.VolumeMounts = append(c.VolumeMounts, mount)
	}
}

func mounts(c *corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volumeBinary })
}

// waitCommand is lastcall wait without an agent, with flags for a plane, or of sockets alone, for an app's container;
// nil for a proxy, whose report is in the apps' termination messages. A hook has the environment of the app, so the
// pod's settings are passed as flags.
func (j *injection) waitCommand(c *corev1.Container, flags []string, ports []watched) *corev1.LifecycleHandler {
	command := append([]string{binary, "wait"}, flags...)
	if c != nil && j.isWorker(c) {
		for _, signal := range j.until {
			command = append(command, "--until", signal)
		}
	}
	if len(ports) > 0 {
		list := make([]string, 0, len(ports))
		for _, p := range ports {
			list = append(list, p.String())
		}
		command = append(command, "--ports", strings.Join(list, ","))
	}
	switch {
	case c == nil:
	case c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError:
		j.note("container %s: terminationMessagePolicy is %s, so its termination message has no report, "+
			"which would take the place of its log", c.Name, c.TerminationMessagePolicy)
	default:
		command = append(command, "--report", cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault))
	}
	s := j.settings
	for _, v := range []struct {
		flag  string
		value meshconfig.Value[time.Duration]
	}{
		{"--minimum-drain", s.MinimumDrain}, {"--quiet-time", s.QuietTime},
		{"--idle-grace", s.IdleGrace}, {"--last-call-margin", s.Margin},
	} {
		if v.value.IsSet() {
			command = append(command, v.flag, v.value.Value.String())
		}
	}
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

// watched is a port of the app and its protocol, or "" if it is not set.
type watched struct {
	port     uint16
	protocol string
}

// String is as lastcall wait --ports takes it.
func (w watched) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%d/%s", w.port, w.protocol), "/")
}

// readPorts reads the ports that hooks without an agent watch, from lastcall's annotation, or dapr's if no app lists a
// port itself.
func (j *injection) readPorts() (err error) {
	name := annotationPorts
	listsPort := func(c *corev1.Container) bool { return len(watchedPorts(c)) > 0 }
	if j.pod.Annotations[name] == "" && !slices.ContainsFunc(apps(&j.pod.Spec), listsPort) {
		name = pod.DaprPort
	}
	if !j.captures() {
		j.watched, err = parseWatched(name, j.pod.Annotations[name])
	}
	return err
}

// parseWatched reads an annotation: PORT[/PROTOCOL], comma-separated.
func parseWatched(annotation, text string) (out []watched, err error) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		port, protocol, err := meshconfig.ParsePort(item)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", annotation, err)
		}
		out = append(out, watched{port, protocol})
	}
	return sortWatched(out), nil
}

// portsOf are the ports that a hook without an agent watches: those of the annotation, or else the container's.
func (j *injection) portsOf(c *corev1.Container) []watched {
	if len(j.watched) > 0 {
		return j.watched
	}
	return watchedPorts(c)
}

// watchedPorts are the TCP ports of a container, with the protocols that their names say.
func watchedPorts(c *corev1.Container) []watched {
	var out []watched
	for _, p := range c.Ports {
		if isTCP(p) {
			out = append(out, watched{uint16(p.ContainerPort), meshconfig.PortProtocol(p.Name)})
		}
	}
	return sortWatched(out)
}

// sortWatched leaves each port once, an opaque protocol before others.
func sortWatched(ports []watched) []watched {
	slices.SortFunc(ports, func(a, b watched) int {
		opaque := func(w watched) int {
			if meshconfig.IsOpaquePort(w.protocol) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(opaque(a), opaque(b)), -cmp.Compare(a.protocol, b.protocol))
	})
	return slices.CompactFunc(ports, func(a, b watched) bool { return a.port == b.port })
}

// isPlaneHook reports whether a hook is lastcall wait without an agent.
func isPlaneHook(h *corev1.LifecycleHandler) bool {
	flags, _ := pod.WaitFlags(h)
	return isExecHook(h) && pod.HasNoAgent(flags)
}

func isExecHook(h *corev1.LifecycleHandler) bool {
	return h != nil && h.Exec != nil && len(h.Exec.Command) > 1 && h.Exec.Command[0] == binary
}

// tcpPorts lists the TCP ports of a container, separated by commas.
func tcpPorts(c *corev1.Container) string {
	var out []string
	for _, p := range watchedPorts(c) {
		out = append(out, strconv.Itoa(int(p.port)))
	}
	return strings.Join(out, ",")
}

func isTCP(p corev1.ContainerPort) bool {
	return (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) && p.ContainerPort > 0 && p.ContainerPort <= 65535
}

// maxSignals limits the signals of a worker.
const maxSignals = 10

// readUntil reads the signals of a worker. An agent cannot ask them: a command and a file belong to the worker's
// container.
func (j *injection) readUntil() error {
	for line := range strings.Lines(j.pod.Annotations[annotationUntil]) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := worker.Parse(line); err != nil {
			return fmt.Errorf("annotation %s: %w", annotationUntil, err)
		}
		j.until = append(j.until, line)
	}
	switch {
	case len(j.until) > maxSignals:
		return fmt.Errorf("annotation %s has %d signals: must be at most %d", annotationUntil, len(j.until), maxSignals)
	case len(j.until) == 0 || !j.captures():
	case j.pod.Annotations[annotationProxy] != "":
		return unableError{fmt.Sprintf("annotation %s needs %s: %s, whose hook runs in the worker's container",
			annotationUntil, annotationProxy, Sockets)}
	default:
		j.proxy = Sockets
	}
	return nil
}

// isWorker reports whether a container is the worker that the signals are about.
func (j *injection) isWorker(c *corev1.Container) bool {
	all := apps(&j.pod.Spec)
	if len(j.until) == 0 || len(all) == 0 {
		return false
	}
	worker := all[0]
	if named := pod.Find(&j.pod.Spec, j.pod.Annotations[annotationDefaultContainer]); named != nil {
		worker = named
	}
	return worker.Name == c.Name
}

// linkerdFlags let the hook read the counters of linkerd's proxy, at its admin port.
func (j *injection) linkerdFlags() []string {
	if pod.OtherMeshOf(j.pod, j.Namespace) != pod.MeshLinkerd {
		return nil
	}
	const key = "config.linkerd.io/admin-port"
	port := cmp.Or(j.pod.Annotations[key], j.Namespace.Annotations[key])
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		port = strconv.Itoa(pod.LinkerdAdminPort)
	}
	if j.pod.Annotations[annotationLinkerdShutdown] == "true" {
		return []string{"--linkerd", port, "--linkerd-shutdown"}
	}
	return []string{"--linkerd", port}
}

// How long linkerd's proxy keeps its idle connection to the app: the annotation and the variable that its injector
// makes of it.
const (
	linkerdIdleAnnotation = "config.linkerd.io/proxy-inbound-discovery-cache-unused-timeout"
	linkerdIdleVariable   = "LINKERD2_PROXY_INBOUND_DISCOVERY_IDLE_TIMEOUT"
	linkerdIdle           = "2s"
	linkerdIdleDefault    = "90s"
)

// shortenLinkerdIdle lets linkerd's proxy close an idle HTTP/2 connection to the app soon: its counters stop showing
// that one is idle once a client has left before its response, and linkerd's default would hold the hook to its
// deadline.
func (j *injection) shortenLinkerdIdle(ports []watched) {
	proxy := pod.Find(&j.pod.Spec, "linkerd-proxy")
	value, _ := pod.Variable(proxy, linkerdIdleVariable)
	_, isSet := j.pod.Annotations[linkerdIdleAnnotation]
	isMuxed := slices.ContainsFunc(ports, func(w watched) bool { return meshconfig.IsMuxedPort(w.protocol) })
	if j.linkerdFlags() == nil || isSet || !isMuxed || proxy != nil && value != linkerdIdleDefault {
		return
	}
	j.pod.Annotations[linkerdIdleAnnotation] = linkerdIdle
	if proxy != nil {
		setVariable(proxy, linkerdIdleVariable, linkerdIdle)
	}
	j.note("%s is %s: linkerd's proxy would keep an idle HTTP/2 connection to the app for %s, and hold its end",
		linkerdIdleAnnotation, linkerdIdle, linkerdIdleDefault)
}
