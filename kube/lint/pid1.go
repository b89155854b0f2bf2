package lint

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// shellAsPID1: the app below such a process never gets SIGTERM, and SIGKILL ends it with all its requests.
func (l *linting) shellAsPID1() {
	if l.Job {
		return
	}
	spec := &l.Pod.Spec
	l.containers(func(c *corev1.Container, path string) {
		isApp := strings.HasPrefix(path, "spec.containers") && (len(c.Ports) > 0 || len(spec.Containers) == 1)
		if !isApp || carrier.IsProxy(spec, c.Name) {
			return
		}
		if process := carrier.ShellAsPID1(spec, c); process != "" {
			l.find("LC029", Warning, path+".command", "%s is PID 1 and does not pass SIGTERM on: the app does not learn of its end, and SIGKILL cuts its requests at the end of the grace period; start the app itself or by exec (sh -c \"exec …\"), put tini or another init in front, set shareProcessNamespace: true, or handle the signal (trap)", process)
		}
	})
}
