package inject

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// addIstio leaves the traffic to Istio's sidecar, and adds what it lacks: that it
// ends when nothing is open, and that the app outlives its last request.
func (j *injection) addIstio() error {
	if err := j.addSockets(); err != nil {
		return err
	}
	proxy := find(&j.pod.Spec, istioProxy)
	if proxy == nil {
		return nil // Istio's injector comes later, and then ours again
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
		// A lifecycle of the user's own takes the place of Istio's, which begins the
		// drain while the app is still there (REFERENCE: injection templates of 1.31).
		proxy.Lifecycle.PreStop = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{"pilot-agent", "request", "--debug-port=" + strconv.Itoa(j.settings.StatusPort.Value), "POST", "drain"},
		}}
		j.note("the native %s had no preStop: Istio's own is put back, else its drain began only when the app was gone", istioProxy)
	}
	return nil
}
