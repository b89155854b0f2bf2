package pod

import (
	"path"
	"slices"
	"strings"
)

// shellless are parts of the names of images without a shell, and without the usual programs.
var shellless = []string{
	"distroless", "/static", "scratch", "chainguard/", "cgr.dev/",
	"fluent/fluent-bit", "cloudflare/cloudflared", "oauth2-proxy/oauth2-proxy", "cloud-sql-connectors/cloud-sql-proxy",
	"otel/opentelemetry-collector", "coredns/coredns", "traefik/whoami", "hashicorp/http-echo", "daprio/daprd",
	"openpolicyagent/opa", "jetstack/cert-manager", "zitadel/zitadel", "k8s.io/pause", "kedacore/keda",
	"knative-releases/",
	"kube-rbac-proxy", "metrics-server/metrics-server", "kube-state-metrics/kube-state-metrics",
	"external-dns/external-dns",
}

// shellTags are parts of tags of such images that do have a shell.
var shellTags = []string{"debug", "alpine", "busybox", "debian", "bookworm", "bullseye", "dev", "shell"}

// bashless are Docker's official images whose variant alpine has no bash.
var bashless = []string{"alpine", "busybox", "nginx", "node", "python", "redis", "ruby", "php", "httpd", "haproxy",
	"memcached", "golang"}

// lean are official images that have none of the programs that list and find processes, unless their tag is alpine; of
// the others, those whose tag is slim.
var lean = []string{"nginx", "httpd", "redis", "valkey", "haproxy", "memcached", "php"}

// tools are the programs that these lack; fetchers those that they lack too, but for nginx and php.
var (
	tools    = []string{"killall", "pkill", "pgrep", "ps"}
	fetchers = []string{"curl", "wget"}
	official = []string{"python", "node", "ruby", "golang", "debian"}
)

// external are the usual programs of hooks, which few images contain.
var external = []string{
	"sh", "bash", "ash", "dash", "sleep", "curl", "wget", "nc", "netstat", "killall", "pkill", "kill", "timeout", "env",
	"echo", "true",
	"touch", "cat", "busybox", "nginx", "test",
}

// lacks is why an image does not have a program; empty if it may have it. commands is not 0 within a shell, which has
// some of the programs itself.
func lacks(image, program string, commands *int) string {
	name, tag := split(image)
	base := path.Base(program)
	isAlpine := strings.Contains(tag, "alpine") || name == "alpine" || name == "busybox"
	has := func(part string) bool { return strings.Contains(tag, part) }
	isBare := slices.ContainsFunc(shellless, func(s string) bool {
		return strings.Contains(name, s) ||
			strings.Contains(tag, s)
	}) &&
		!slices.ContainsFunc(shellTags, has)
	isLean := !isAlpine && (slices.Contains(lean, name) || slices.Contains(official, name) && has("slim"))
	switch {
	case isBare && *commands == 0 && slices.Contains(external, base):
	case isLean && (slices.Contains(tools, base) || slices.Contains(fetchers, base) && name != "nginx" && name != "php"):
	case base == "bash" && isAlpine && slices.Contains(bashless, strings.TrimPrefix(name, "library/")):
	default:
		return ""
	}
	return "runs " + base + ", which image " + image + " probably lacks"
}

// split divides an image's name from its tag, and leaves out Docker's registry.
func split(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")
	name = image
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		name, tag = image[:i], image[i+1:]
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/"), tag
}
