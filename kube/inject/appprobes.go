package inject

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

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
