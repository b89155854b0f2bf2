package inject

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
)

// withProbes adds the container's liveness and startup probe to a hook without a proxy, which by them distinguishes a
// restart of the container from the pod's end.
func (j *injection) withProbes(h *corev1.LifecycleHandler, c *corev1.Container) *corev1.LifecycleHandler {
	app := hook.App{Liveness: j.appProbe(c, c.LivenessProbe), Startup: j.appProbe(c, c.StartupProbe)}
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
func (j *injection) appProbe(c *corev1.Container, from *corev1.Probe) *probe.Probe {
	if from == nil {
		return nil
	}
	p := &probe.Probe{
		TimeoutSeconds: int(from.TimeoutSeconds), PeriodSeconds: int(from.PeriodSeconds), FailureThreshold: int(from.FailureThreshold),
	}
	switch {
	case from.HTTPGet != nil && from.HTTPGet.Host == "":
		port, ok := j.resolve(c, from.HTTPGet.Port)
		if !ok {
			return nil
		}
		p.HTTPGet = &probe.HTTPGet{Path: from.HTTPGet.Path, Port: probe.Port(port.IntVal), Scheme: string(from.HTTPGet.Scheme)}
		for _, h := range from.HTTPGet.HTTPHeaders {
			p.HTTPGet.HTTPHeaders = append(p.HTTPGet.HTTPHeaders, probe.Header{Name: h.Name, Value: h.Value})
		}
	case from.TCPSocket != nil && from.TCPSocket.Host == "":
		port, ok := j.resolve(c, from.TCPSocket.Port)
		if !ok {
			return nil
		}
		p.TCPSocket = &probe.TCPSocket{Port: probe.Port(port.IntVal)}
	case from.GRPC != nil:
		p.GRPC = &probe.GRPC{Port: probe.Port(from.GRPC.Port)}
		if from.GRPC.Service != nil {
			p.GRPC.Service = *from.GRPC.Service
		}
	case from.Exec != nil && len(from.Exec.Command) > 0:
		p.Exec = &probe.Exec{Command: from.Exec.Command}
	default:
		return nil
	}
	return p
}
