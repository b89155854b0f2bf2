package inject

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestBinaryPath: images have files that are called /lastcall, such as one whose entry point is lastcall run. No volume
// is mounted on one.
func TestBinaryPath(t *testing.T) {
	classic, sockets := testOptions(), testOptions()
	classic.Sidecar = Classic
	for name, c := range map[string]struct {
		o     Options
		proxy Proxy
	}{
		"classic": {classic, Pipe},
		"hook":    {sockets, Sockets},
	} {
		got, r := Pod(aPod(func(p *corev1.Pod) { p.Annotations["lastcall.dev/proxy"] = string(c.proxy) }), c.o)
		if r.Outcome != Injected {
			t.Fatal(name, r)
		}
		app := apps(&got.Spec)[0]
		hook := app.Lifecycle.PreStop.Exec.Command
		if len(app.VolumeMounts) != 1 || !strings.HasPrefix(hook[0], app.VolumeMounts[0].MountPath+"/") ||
			slices.ContainsFunc(app.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == program }) {
			t.Errorf("%s: %q, %+v", name, hook, app.VolumeMounts)
		}
	}
}
