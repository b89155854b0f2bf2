package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
)

// In every form without an agent the hook has the probes, as lastcall wait --app-probes reads them and with numbers for
// named ports, before what it runs first, whose arguments are not its own: the order of TestBeforeARestart in cmd/lastcall.
func TestHookWithProbesRunsTheAppsOwn(t *testing.T) {
	live := &corev1.HTTPGetAction{Path: "/live", Port: intstr.FromString("http"), HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "shop"}}}
	app := func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: live.DeepCopy()}, PeriodSeconds: 1, FailureThreshold: 2}
		c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready", "--quick"}}}}
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/leave", "--ports"}}}}
	}
	sockets := aPod(app)
	sockets.Annotations["lastcall.dev/proxy"] = "sockets"
	past := aPod(app)
	past.Annotations[istioMode] = "NONE"
	elsewhere := sockets.DeepCopy()
	elsewhere.Spec.Containers[0].LivenessProbe.HTTPGet.Host, elsewhere.Spec.Containers[0].StartupProbe = "other", nil
	const probes = `{"liveness":{"httpGet":{"path":"/live","port":8080,"httpHeaders":[{"name":"Host","value":"shop"}]},` +
		`"periodSeconds":1,"failureThreshold":2},"startup":{"exec":{"command":["ready","--quick"]}}}`
	if _, err := hook.ParseApp(probes); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name, flags string
		pod         *corev1.Pod
		probes      string
	}{
		{"sockets", "--ports 8080/http", sockets, " --app-probes " + probes},
		{"Istio's Envoy", "--envoy 127.0.0.1:15000 --ports 8080/http", withIstio(aPod(app), native), " --app-probes " + probes},
		{"ports that Istio does not capture", "--ports 8080/http", withIstio(past, native), " --app-probes " + probes},
		{"a probe of another host", "--ports 8080/http", elsewhere, ""},
	} {
		got, r := Pod(c.pod, testOptions())
		want := "wait " + c.flags + " --report /dev/termination-log" + c.probes + " --after 25s -- /leave --ports"
		if hook := command(t, got, "web"); hook != want {
			t.Errorf("%s: the hook is\n%s, want\n%s\n%s", c.name, hook, want, strings.Join(r.Notes, "\n"))
		}
	}
}
