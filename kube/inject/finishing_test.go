package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// TestKnownServers: before anything is learned, a server that is known to finish gets its stop signal while its own TLS
// connections are open; nothing else is guessed.
func TestKnownServers(t *testing.T) {
	signal := func(s corev1.Signal) *corev1.Lifecycle { return &corev1.Lifecycle{StopSignal: &s} }
	learned := Learned{App: drain.AppExits}
	for name, c := range map[string]struct {
		apps    []corev1.Container
		learned Learned
		app     string // annotation
		want    string
	}{
		"nginx":                        {apps: []corev1.Container{{Image: "nginx"}}, want: "finishes"},
		"with a registry and a tag":    {apps: []corev1.Container{{Image: "docker.io:5000/library/nginx:1.27-alpine"}}, want: "finishes"},
		"with a digest":                {apps: []corev1.Container{{Image: "a.example/mirror/haproxy:3@sha256:00"}}, want: "finishes"},
		"caddy":                        {apps: []corev1.Container{{Image: "caddy:2"}}, want: "finishes"},
		"by its command":               {apps: []corev1.Container{{Image: "web", Command: []string{"gunicorn", "app"}}}, want: "finishes"},
		"httpd":                        {apps: []corev1.Container{{Image: "httpd:2.4"}}, want: "finishes"},
		"its own command":              {apps: []corev1.Container{{Image: "nginx", Command: []string{"/usr/sbin/nginx", "-g", "daemon off;"}}}, want: "finishes"},
		"a shell":                      {apps: []corev1.Container{{Image: "nginx", Command: []string{"sh", "-c", "nginx"}}}},
		"another stop signal":          {apps: []corev1.Container{{Image: "nginx", Lifecycle: signal("SIGTERM")}}},
		"the same stop signal":         {apps: []corev1.Container{{Image: "nginx", Lifecycle: signal("SIGQUIT")}}, want: "finishes"},
		"an image of another server":   {apps: []corev1.Container{{Image: "envoyproxy/envoy:v1.30"}}},
		"a name that only ends so":     {apps: []corev1.Container{{Image: "team/web-nginx"}}},
		"a publisher that differs":     {apps: []corev1.Container{{Image: "docker.io/bitnami/nginx:1"}}},
		"next to one that serves":      {apps: []corev1.Container{{Image: "nginx"}, {Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 8443}}}}},
		"next to one that serves none": {apps: []corev1.Container{{Image: "nginx"}, {Image: "logs"}}, want: "finishes"},
		"what was learned goes first":  {apps: []corev1.Container{{Image: "nginx"}}, learned: learned, want: "exits"},
		"annotation":                   {apps: []corev1.Container{{Image: "nginx"}}, app: "exits", want: "exits"},
		"annotation auto":              {apps: []corev1.Container{{Image: "nginx"}}, app: "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			o.Learned = c.learned
			got, r := Pod(aPod(func(p *corev1.Pod) {
				if c.app != "" {
					p.Annotations["lastcall.dev/app"] = c.app
				}
				p.Spec.Containers = c.apps
				for i := range p.Spec.Containers {
					p.Spec.Containers[i].Name = string(rune('a' + i))
				}
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8443}}
			}), o)
			if r.Outcome != Injected {
				t.Fatal(r)
			}
			if value, _ := pod.Variable(pod.Find(&got.Spec, pod.Sidecar), "LASTCALL_APP"); value != c.want {
				t.Errorf("LASTCALL_APP is %q, want %q", value, c.want)
			}
			if isKnown := c.want == "finishes"; strings.Contains(strings.Join(r.Notes, "\n"), "known of") != isKnown {
				t.Errorf("notes %q", r.Notes)
			}
		})
	}
}
