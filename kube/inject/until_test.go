package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A worker's hook waits for its signals, in addition to its ports and to Istio's Envoy.
func TestUntil(t *testing.T) {
	const signals = "\n file:/idle \n\nunix:/run/work.sock\n"
	worker := func(change func(*corev1.Pod)) *corev1.Pod {
		return aPod(func(p *corev1.Pod) {
			p.Annotations[annotationUntil] = signals
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "logs", Image: "logs:1"})
			if change != nil {
				change(p)
			}
		})
	}
	withoutPorts := func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }
	const until = "wait --until file:/idle --until unix:/run/work.sock"
	for name, c := range map[string]struct {
		pod       *corev1.Pod
		proxy     Proxy
		web, logs string
	}{
		"without ports":        {worker(withoutPorts), Sockets, until + " --report /dev/termination-log", ""},
		"with ports":           {worker(nil), Sockets, until + " --ports 8080/http --report /dev/termination-log", ""},
		"another container":    {worker(func(p *corev1.Pod) { p.Annotations[annotationDefaultContainer] = "logs" }), Sockets, "wait --ports 8080/http --report /dev/termination-log", until + " --report /dev/termination-log"},
		"next to Istio":        {withIstio(worker(withoutPorts), true), Istio, "wait --envoy 127.0.0.1:15000 --until file:/idle --until unix:/run/work.sock --report /dev/termination-log", "wait --envoy 127.0.0.1:15000 --report /dev/termination-log"},
		"sockets by the pod":   {worker(func(p *corev1.Pod) { p.Annotations[annotationProxy] = string(Sockets) }), Sockets, until + " --ports 8080/http --report /dev/termination-log", ""},
		"a job's, with a hook": {worker(func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: execOf("/stop")} }), Sockets, until + " --ports 8080/http --report /dev/termination-log --before 25s -- /stop", ""},
	} {
		got, r := Pod(c.pod, testOptions())
		if r.Outcome != Injected || r.Proxy != c.proxy {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		if web, logs := command(t, got, "web"), command(t, got, "logs"); web != c.web || logs != c.logs {
			t.Errorf("%s:\n%q, %q; want\n%q, %q", name, web, logs, c.web, c.logs)
		}
		checkAgain(t, name, got, testOptions())
	}
	for text, want := range map[string]string{
		"idle":                                 "annotation lastcall.dev/until: \"idle\": must be exec:COMMAND",
		"file:/idle\nfile:busy":                "\"file:busy\": the path must be absolute",
		"exec:a\x00b":                          "NUL",
		"exec:" + strings.Repeat("a", 200_000): "must be at most 8192",
		strings.Repeat("exec:true\n", 1+maxSignals): "has 11 signals: must be at most 10",
	} {
		if _, r := Pod(annotated(annotationUntil, text), testOptions()); r.Outcome != LeftAlone || r.Err == nil || !strings.Contains(r.Reason, want) {
			t.Errorf("%q: %+v; want %q", text, r, want)
		}
	}
	p := worker(func(p *corev1.Pod) { p.Annotations[annotationProxy] = string(Pipe) })
	if _, r := Pod(p, testOptions()); r.Outcome != LeftAlone || r.Err != nil || !strings.Contains(r.Reason, "needs lastcall.dev/proxy: sockets") {
		t.Errorf("%+v", r)
	}
}
