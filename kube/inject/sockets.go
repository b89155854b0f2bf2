package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/meshconfig"
)

// binary is the path of lastcall in the app's containers without a sidecar.
const binary = mountBinary + "/lastcall"

// mountCopy is the volume's path in the init container that copies lastcall: at mountBinary it would hide the image's own
// /lastcall.
const mountCopy = "/lastcall-bin"

// addSockets gives each app with ports a preStop that watches their connections. An init container copies the binary,
// because the image may not even have a shell.
func (j *injection) addSockets() error {
	spec := &j.pod.Spec
	said, err := parseWatched(j.pod.Annotations[annotationPorts])
	if err != nil {
		return err
	}
	used := false
	err = j.addHooks(func(c *corev1.Container) *corev1.LifecycleHandler {
		ports := said
		if len(ports) == 0 {
			ports = watchedPorts(c)
		}
		if len(ports) == 0 {
			j.note("container %s lists no port and gets no preStop: set the ports with annotation %s", c.Name, annotationPorts)
			return nil
		}
		used = true
		for _, p := range ports {
			if meshconfig.IsOpaquePort(p.protocol) {
				j.note("container %s: connections of port %s count as busy as long as they are open, because the kernel does not show their requests; set another protocol with annotation %s", c.Name, p, annotationPorts)
			}
		}
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: portsCommand(ports, j.settings)}}
	})
	if err != nil {
		return err
	}
	if !used {
		return nil
	}
	for _, c := range apps(spec) {
		if c.Lifecycle != nil && isPortsHook(c.Lifecycle.PreStop) {
			j.equip(c)
		}
	}
	j.copyProgram()
	return nil
}

// copyProgram gives the pod a volume with lastcall in it.
func (j *injection) copyProgram() {
	spec := &j.pod.Spec
	if !hasVolume(spec, volumeBinary) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volumeBinary, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	if find(spec, containerCopy) == nil {
		spec.InitContainers = slices.Insert(spec.InitContainers, 0, corev1.Container{
			Name:            containerCopy,
			Image:           j.Image,
			ImagePullPolicy: j.PullPolicy,
			Args:            []string{"copy", mountCopy + "/lastcall"},
			Resources:       j.resources(),
			SecurityContext: bound(),
			VolumeMounts:    []corev1.VolumeMount{{Name: volumeBinary, MountPath: mountCopy}},
		})
	}
}

// mountProgram lets a container run it.
func (j *injection) mountProgram(c *corev1.Container) {
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volumeBinary }) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeBinary, MountPath: mountBinary, ReadOnly: true})
	}
}

// equip gives a container what its hook needs. The node's address is not among what
// does not count, though probes come from it: so do clients that a Service has sent over
// a node (externalTrafficPolicy: Cluster). A probe moves the end by the quiet time only.
func (j *injection) equip(c *corev1.Container) {
	j.mountProgram(c)
	if _, said := variable(c, variableGracePeriod); !said {
		setVariable(c, variableGracePeriod, j.env.values[variableGracePeriod])
	}
}

// portsCommand is lastcall wait without an agent. A hook has the environment of the app, so the pod's settings are passed
// as flags.
func portsCommand(ports []watched, s *meshconfig.Settings) []string {
	list := make([]string, 0, len(ports))
	for _, p := range ports {
		list = append(list, p.String())
	}
	command := []string{binary, "wait", "--ports", strings.Join(list, ",")}
	for _, v := range []struct {
		flag  string
		value meshconfig.Value[time.Duration]
	}{
		{"--minimum-drain", s.MinimumDrain}, {"--quiet-time", s.QuietTime}, {"--idle-grace", s.IdleGrace}, {"--leave", s.Margin},
	} {
		if v.value.IsSet() {
			command = append(command, v.flag, v.value.Value.String())
		}
	}
	return command
}

// watched is a port of the app and its protocol, or "" if it is not set.
type watched struct {
	port     uint16
	protocol string
}

// String is as lastcall wait --ports takes it.
func (w watched) String() string {
	if w.protocol == "" {
		return strconv.Itoa(int(w.port))
	}
	return strconv.Itoa(int(w.port)) + "/" + w.protocol
}

// parseWatched reads the annotation: PORT[/PROTOCOL], comma-separated.
func parseWatched(text string) ([]watched, error) {
	var out []watched
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		number, name, typed := strings.Cut(item, "/")
		port, err := strconv.ParseUint(number, 10, 16)
		protocol := meshconfig.PortProtocol(name)
		switch {
		case err != nil || port == 0:
			return nil, fmt.Errorf("annotation %s: %q must be a port from 1 to 65535, such as 8080 or 9090/grpc", annotationPorts, item)
		case typed && protocol == "":
			return nil, fmt.Errorf("annotation %s: %q: the protocol must be one of %s", annotationPorts, item, strings.Join(meshconfig.PortProtocols(), ", "))
		}
		out = append(out, watched{uint16(port), protocol})
	}
	return sortWatched(out), nil
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

func joinPorts(ports []uint16) string {
	list := make([]string, 0, len(ports))
	for _, p := range ports {
		list = append(list, strconv.Itoa(int(p)))
	}
	return strings.Join(list, ",")
}

func isPortsHook(h *corev1.LifecycleHandler) bool {
	return isExecHook(h) && slices.Contains(h.Exec.Command, "--ports")
}

func isExecHook(h *corev1.LifecycleHandler) bool {
	return h != nil && h.Exec != nil && len(h.Exec.Command) > 1 && h.Exec.Command[0] == binary
}

func tcpPorts(c *corev1.Container) []uint16 {
	var out []uint16
	for _, p := range c.Ports {
		if isTCP(p) {
			out = append(out, uint16(p.ContainerPort))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func isTCP(p corev1.ContainerPort) bool {
	return (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) && p.ContainerPort > 0 && p.ContainerPort <= 65535
}
