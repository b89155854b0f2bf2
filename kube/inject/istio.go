package inject

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// addIstio leaves the traffic to Istio's sidecar, makes it exit when no connection is open, and delays the app's SIGTERM
// until its last request has ended.
func (j *injection) addIstio() error {
	if err := j.addSockets(); err != nil {
		return err
	}
	proxy := find(&j.pod.Spec, istioProxy)
	if proxy == nil {
		return nil // Istio's injector runs later, then ours again
	}
	if _, said := variable(proxy, variableExitOnZero); !said && !j.settings.ExitOnZero.IsSet() {
		setVariable(proxy, variableExitOnZero, "true")
	}
	if !isNative(proxy) {
		return nil
	}
	if proxy.Lifecycle == nil {
		proxy.Lifecycle = &corev1.Lifecycle{}
	}
	if proxy.Lifecycle.PreStop == nil {
		// A lifecycle in the pod's manifest replaces Istio's, which begins the drain while the app still runs (Istio's
		// injection templates, 1.31).
		proxy.Lifecycle.PreStop = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{"pilot-agent", "request", "--debug-port=" + strconv.Itoa(j.settings.StatusPort.Value), "POST", "drain"},
		}}
		j.note("the native %s had no preStop: Istio's own was restored, because otherwise its drain would begin only after the app has ended", istioProxy)
	}
	return nil
}
