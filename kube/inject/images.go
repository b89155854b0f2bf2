package inject

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// server is a server whose image is known to finish at its stop signal: it answers its requests, closes its
// connections and exits. docs/http-servers.md shows what others do.
type server struct {
	repositories []string // the last part of the image's name
	programs     []string // of a container's own command
	stopSignal   string   // of the image; a container's own is another one
}

// finishing are those servers. Not among them: Envoy, PHP-FPM with SIGTERM, Tomcat, Jetty and databases, which end at
// once.
var finishing = []server{
	{[]string{"nginx", "nginx-unprivileged"}, []string{"nginx", "nginx-debug"}, "SIGQUIT"},
	{[]string{"haproxy", "haproxy-alpine", "haproxy-debian"}, []string{"haproxy"}, "SIGUSR1"},
	{[]string{"httpd"}, []string{"httpd", "httpd-foreground"}, "SIGWINCH"},
	{[]string{"caddy"}, []string{"caddy"}, "SIGTERM"},
	{[]string{"traefik"}, []string{"traefik"}, "SIGTERM"},
}

// otherPublishers rebuild servers without the stop signal of the official image.
var otherPublishers = []string{"bitnami", "bitnamilegacy", "bitnamisecure"}

// finishes reports whether a container is such a server.
func finishes(c *corev1.Container) bool {
	name, _, _ := strings.Cut(c.Image, "@")
	name, _, _ = strings.Cut(strings.ToLower(name[strings.LastIndexByte(name, '/')+1:]), ":")
	publisher := path.Base(path.Dir(strings.ToLower(c.Image)))
	return !slices.Contains(otherPublishers, publisher) && slices.ContainsFunc(finishing, func(s server) bool {
		return slices.Contains(s.repositories, name) && s.isRunBy(c)
	})
}

// isRunBy reports whether the container starts the server and stops it with the image's signal.
func (s server) isRunBy(c *corev1.Container) bool {
	if l := c.Lifecycle; l != nil && l.StopSignal != nil && string(*l.StopSignal) != s.stopSignal {
		return false
	}
	return len(c.Command) == 0 || slices.Contains(s.programs, path.Base(c.Command[0]))
}

// finishingImages are the images of the pod's apps if all of those that serve are known to finish. Apps without a port
// do not count.
func finishingImages(pod *corev1.Pod) []string {
	var out []string
	for _, c := range apps(&pod.Spec) {
		switch {
		case finishes(c):
			out = append(out, c.Image)
		case slices.ContainsFunc(c.Ports, isTCP):
			return nil
		}
	}
	return out
}
