package pod_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// FuzzScripts: a hook of any author is read without a panic, and in a bounded time.
func FuzzScripts(f *testing.F) {
	for _, script := range []string{
		"sleep 5; nginx -s quit", "for ((i=0;i<1<<-1;i++)); do sleep 1; done", "while [ $i -lt 5 ]; do i=$((i+1)); done",
		"f() { f; f; }; f", "x=$x$x$x; for i in {1..9999}; do x=$x$x; done", "case $1 in a) sleep 1;; esac", "select x in a; do break; done",
		"timeout ${N:-5} sh -c 'exec sleep 9' || (kill -QUIT $(cat /pid); exit 1) & wait", "((a=b, b=a)); let x++; echo $((a / 0)) ${x//a/b}",
		"while true; do while true; do while cond; do sleep 1; break; done; done; done", "sleep {1..99999999}", "cat <<E\n$(f)\nE\n",
	} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		c := corev1.Container{Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"sh", "-c", script}}}}}
		c.Command = []string{"bash", "-c", script}
		begin := time.Now()
		h := pod.ReadHook(&corev1.PodSpec{Containers: []corev1.Container{c}}, &c)
		if h.Duration < 0 || h.Duration > pod.Forever || h.StopsAt > h.Duration {
			t.Errorf("%q: %+v", script, h)
		}
		if d := time.Since(begin); d > 20*time.Second { // not a measurement: an endless loop
			t.Errorf("%q took %v", script, d)
		}
	})
}
