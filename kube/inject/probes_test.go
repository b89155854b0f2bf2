package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
)

// The hook without a proxy gets the probes as lastcall wait --app-probes reads them, with numbers for named ports.
func TestHookKnowsProbes(t *testing.T) {
	c := &corev1.Container{
		Name:  "app",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		LivenessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/live", Port: intstr.FromString("http"), HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "shop"}},
			}},
			PeriodSeconds: 1, FailureThreshold: 2,
		},
		StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready"}}}},
	}
	j := &injection{pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{*c}}}}
	command := func(c *corev1.Container) []string {
		h := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{binary, "wait"}}}
		return j.withProbes(h, c).Exec.Command
	}
	got := command(c)
	const want = `{"liveness":{"httpGet":{"path":"/live","port":8080,"httpHeaders":[{"name":"Host","value":"shop"}]},` +
		`"periodSeconds":1,"failureThreshold":2},"startup":{"exec":{"command":["ready"]}}}`
	if len(got) != 4 || got[2] != "--app-probes" || got[3] != want {
		t.Fatalf("%q; want %s", got, want)
	}
	if _, err := hook.ParseApp(got[3]); err != nil {
		t.Error(err)
	}
	c.LivenessProbe.HTTPGet.Host, c.StartupProbe = "other", nil
	if got := command(c); len(got) != 2 {
		t.Errorf("a probe of another host: %q", got)
	}
}

// In every form without an agent the hook has the probes before what it runs first, whose arguments are not its own: the
// order of TestBeforeARestart in cmd/lastcall.
func TestHookWithProbesRunsTheAppsOwn(t *testing.T) {
	app := func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"alive", "--quick"}}}}
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/leave", "--ports"}}}}
	}
	sockets := pod(app)
	sockets.Annotations["lastcall.dev/proxy"] = "sockets"
	past := pod(app)
	past.Annotations[istioMode] = "NONE"
	for _, c := range []struct {
		name, flags string
		pod         *corev1.Pod
	}{
		{"sockets", "--ports 8080/http", sockets},
		{"Istio's Envoy", "--envoy 127.0.0.1:15000 --ports 8080/http", withIstio(pod(app), native)},
		{"ports that Istio does not capture", "--ports 8080/http", withIstio(past, native)},
	} {
		got, r := Pod(c.pod, testOptions())
		const end = ` --report /dev/termination-log --app-probes {"liveness":{"exec":{"command":["alive","--quick"]}}} --before 25s -- /leave --ports`
		if hook, want := command(t, got, "web"), "wait "+c.flags+end; hook != want {
			t.Errorf("%s: the hook is\n%s, want\n%s\n%s", c.name, hook, want, strings.Join(r.Notes, "\n"))
		}
	}
}
