package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// bound is the securityContext of containers without any rights.
func bound() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser:                new(int64(istio.ProxyID)),
		RunAsGroup:               new(int64(istio.ProxyID)),
		RunAsNonRoot:             new(true),
		ReadOnlyRootFilesystem:   new(true),
		AllowPrivilegeEscalation: new(false),
		Privileged:               new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// sidecarContainer is lastcall agent.
func (j *injection) sidecarContainer() (corev1.Container, error) {
	resources, err := j.sidecarResources()
	if err != nil {
		return corev1.Container{}, err
	}
	args := []string{"agent", "--capture", "--annotations", mountPodInfo + "/annotations", "--sidecar", string(j.sidecar)}
	if j.sidecar == Classic && isJob(j.pod, j.Options) {
		args = append(args, "--exit-with-app")
	}
	if j.proxy == Envoy {
		args = append(args, "--proxy", "envoy")
	}
	if j.LogFormat == "json" {
		args = append(args, "--log-format", "json")
	}
	ignored, err := parseWatched(annotationIgnoreInbound, j.pod.Annotations[annotationIgnoreInbound])
	if err != nil {
		return corev1.Container{}, err
	}
	for _, w := range ignored {
		if w.protocol != "" {
			return corev1.Container{}, fmt.Errorf("annotation %s: %q: must be a port without a protocol",
				annotationIgnoreInbound, w)
		}
		args = append(args, "--ignore-inbound-port", w.String())
	}
	status := int32(j.settings.StatusPort.Value)
	ready := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(status)}}
	c := j.container(pod.Sidecar, args...)
	if c.Env, c.Resources = j.env, resources; j.proxy == Envoy {
		c.Image = j.EnvoyImage
	}
	c.Ports = []corev1.ContainerPort{{Name: pod.PortStatus, ContainerPort: status, Protocol: corev1.ProtocolTCP}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: volumePodInfo, MountPath: mountPodInfo, ReadOnly: true}}
	// Often, because a probe that runs slightly too early keeps the pod unready until the next one; it fails after a
	// minute.
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: ready, PeriodSeconds: 2, FailureThreshold: 30, TimeoutSeconds: 3}
	// The kubelet starts the next container when this hook has returned. A startupProbe would delay it as well, but by a
	// second, its shortest period.
	serves := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
		Command: []string{program, "ready", "--status-port", strconv.Itoa(int(status))},
	}}
	switch j.sidecar {
	case Native:
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		c.Lifecycle = &corev1.Lifecycle{PostStart: serves, PreStop: j.waitHook(j.sidecarToken())}
	case Classic:
		if hold := j.settings.HoldApplication.Value; hold == nil || *hold {
			c.Lifecycle = &corev1.Lifecycle{PostStart: serves}
		}
	}
	return c, nil
}

// program is the binary's path in its own image, for hooks that run there.
const program = "/lastcall"

// captureArgs is lastcall capture with the pod's settings.
func (j *injection) captureArgs() []string {
	args := []string{"capture"}
	for _, s := range capture.Settings {
		for _, name := range s.Annotations {
			if value, isSet := j.pod.Annotations[name]; isSet {
				args = append(args, "--"+s.Flag+"="+strings.TrimSpace(value))
				break
			}
		}
	}
	if port := j.settings.StatusPort.Value; port != istio.StatusPort {
		args = append(args, "--status-port", strconv.Itoa(port))
	}
	return args
}

// captureContainer runs lastcall capture. It ends before any other container starts, and is the only one with the
// capability to change the pod's network.
func (j *injection) captureContainer() corev1.Container {
	c := j.container(containerCapture, j.captureArgs()...)
	if text := j.env.get(meshconfig.VariableProxyConfig); text != "" { // proxyAdminPort is not captured either
		setVariable(&c, meshconfig.VariableProxyConfig, text)
	}
	// Only user 0 gets added capabilities.
	context := c.SecurityContext
	context.RunAsUser, context.RunAsGroup, context.RunAsNonRoot = new(int64(0)), new(int64(0)), new(false)
	context.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	return c
}

// podInfo is the pod's annotations as a file.
var podInfo = corev1.Volume{Name: volumePodInfo, VolumeSource: corev1.VolumeSource{
	DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
		Path: "annotations", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations"},
	}}},
}}

// addSidecar puts the sidecar and the capture into the pod.
func (j *injection) addSidecar() error {
	spec := &j.pod.Spec
	old := pod.Find(spec, pod.Sidecar)
	if err := j.turnProbes(old); err != nil {
		return err
	}
	if j.merges() {
		j.addHooks(j.appHook)
	}
	containers := j.addPresence()
	copies := slices.ContainsFunc(apps(spec), func(c *corev1.Container) bool { return isExecHook(pod.HookOf(c)) })
	if old != nil { // only new containers had to be changed
		if copies {
			j.copyBySidecar(old)
		}
		setVariable(old, pod.HookToken, j.token)
		setVariable(old, meshconfig.VariableAppContainers, containers)
		if text := j.env.get(meshconfig.VariableProbes); text != "" {
			setVariable(old, meshconfig.VariableProbes, text)
		}
		return nil
	}
	if err := j.mergeMetrics(); err != nil {
		return err
	}
	j.env.set(pod.HookToken, j.token)
	if containers != "" {
		j.env.set(meshconfig.VariableAppContainers, containers)
	}
	if j.sidecar == Native {
		j.env.set(meshconfig.VariableSidecarToken, j.sidecarToken())
	}
	sidecar, err := j.sidecarContainer()
	if err != nil {
		return err
	}
	if copies {
		j.copyBySidecar(&sidecar)
	}
	var first []corev1.Container
	switch j.capture {
	case CaptureSidecar:
		// It sets the rules, and then becomes the agent without any right. NET_ADMIN sets the rules, SETPCAP empties the
		// bounding set. A user other than 0 keeps added capabilities only in a program that has them as file capabilities
		// too, as the image's has. It keeps them under no_new_privs as well: it gains nothing that it did not have.
		sidecar.Args = slices.Concat(j.captureArgs(), []string{"--", program}, sidecar.Args)
		sidecar.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN", "SETPCAP"}
	case CaptureInit:
		first = append(first, j.captureContainer())
	}
	switch j.sidecar {
	case Native:
		// First to start, last to end; the app's own init containers go through it.
		spec.InitContainers = slices.Insert(spec.InitContainers, 0, append(first, sidecar)...)
	case Classic:
		// The app's init containers need the network, which is captured last.
		spec.InitContainers = append(spec.InitContainers, first...)
		if j.pod.Annotations[annotationDefaultContainer] == "" {
			j.pod.Annotations[annotationDefaultContainer] = spec.Containers[0].Name
		}
		spec.Containers = slices.Insert(spec.Containers, 0, sidecar)
	}
	addVolume(spec, podInfo)
	for _, c := range apps(spec) {
		if runsAs(c, spec, istio.ProxyID) {
			j.note("container %s runs as user %d: its outbound traffic is not captured and its connections are not drained",
				c.Name, istio.ProxyID)
		}
	}
	return nil
}

// copyBySidecar has the sidecar copy lastcall into a volume for the apps' hooks, which run long after its start. An
// init container would delay the pod until the kubelet has looked at its end: about a second.
func (j *injection) copyBySidecar(c *corev1.Container) {
	addVolume(&j.pod.Spec, binaryVolume)
	if !mounts(c) {
		c.Args = append(c.Args, "--copy-to", mountBinary+"/lastcall")
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeBinary, MountPath: mountBinary})
	}
}

func runsAs(c *corev1.Container, spec *corev1.PodSpec, user int64) bool {
	if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
		return *s.RunAsUser == user
	}
	s := spec.SecurityContext
	return s != nil && s.RunAsUser != nil && *s.RunAsUser == user
}

// resources are those of every added container, adapted to the class of this pod.
func (j *injection) resources() (r corev1.ResourceRequirements) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	switch {
	case j.pod.Spec.Resources != nil:
		// The pod has resources as a whole (Kubernetes 1.34): those of its containers must not exceed them, and are optional.
	case isGuaranteed(&j.pod.Spec): // a class that decides about evictions and exclusive cores
		r.Requests, r.Limits = list("100m", "128Mi"), list("100m", "128Mi")
	default: // it uses some 15 MiB and little CPU; a CPU limit would only slow it down
		r.Requests = list("10m", "32Mi")
		r.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	}
	return r
}

// sidecarResources are resources, overridden by the pod's annotations.
func (j *injection) sidecarResources() (corev1.ResourceRequirements, error) {
	r := j.resources()
	for _, override := range []struct {
		annotation string
		list       *corev1.ResourceList
		name       corev1.ResourceName
	}{
		{annotationCPU, &r.Requests, corev1.ResourceCPU},
		{annotationMemory, &r.Requests, corev1.ResourceMemory},
		{annotationCPULimit, &r.Limits, corev1.ResourceCPU},
		{annotationMemoryLimit, &r.Limits, corev1.ResourceMemory},
	} {
		text := j.pod.Annotations[override.annotation]
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() <= 0 {
			return r, fmt.Errorf("annotation %s is %q: must be a quantity, such as 100m of cpu or 64Mi of memory",
				override.annotation, text)
		}
		if *override.list == nil {
			*override.list = corev1.ResourceList{}
		}
		(*override.list)[override.name] = q
	}
	if j.pod.Spec.Resources != nil {
		for name := range r.Limits {
			// A limit without a request implies one, which may exceed the pod's resources.
			if _, isSet := r.Requests[name]; !isSet {
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
	}
	for name, limit := range r.Limits {
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) > 0 {
			if _, isLimitSet := j.pod.Annotations["lastcall.dev/"+string(name)+"-limit"]; isLimitSet {
				r.Requests[name] = limit // the API server refuses a request above the limit
			} else {
				r.Limits[name] = request
			}
		}
	}
	return r, nil
}

// isGuaranteed reports whether the requests of all containers equal their limits, for CPU and memory (a limit without a
// request implies one).
func isGuaranteed(spec *corev1.PodSpec) bool {
	for _, c := range pod.Containers(spec) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, ok := c.Resources.Limits[name]
			request, isSet := c.Resources.Requests[name]
			if !ok || limit.IsZero() || isSet && request.Cmp(limit) != 0 {
				return false
			}
		}
	}
	return true
}

// container is one that lastcall adds, without any rights.
func (j *injection) container(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: j.Image, ImagePullPolicy: j.PullPolicy, Args: args,
		Resources: j.resources(), SecurityContext: bound(),
	}
}
