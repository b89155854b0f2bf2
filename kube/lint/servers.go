package lint

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// servers are the settings by which servers wait for their requests after SIGTERM. flag is that of the command line,
// and after = or a blank comes its value: a number of seconds, or a duration.
var servers = []struct{ program, flag, variable, source string }{
	{"gunicorn", "--graceful-timeout", "", "gunicorn's settings: graceful_timeout"},
	{"hypercorn", "--graceful-timeout", "", "hypercorn's configuration: graceful_timeout"},
	{"uvicorn", "--timeout-graceful-shutdown", "", "uvicorn's settings"},
	{"", "--spring.lifecycle.timeout-per-shutdown-phase", "SPRING_LIFECYCLE_TIMEOUT_PER_SHUTDOWN_PHASE", "Spring Boot: graceful shutdown"},
	{"", "-Dspring.lifecycle.timeout-per-shutdown-phase", "", "Spring Boot: graceful shutdown"},
	{"nginx-ingress-controller", "--shutdown-grace-period", "", "ingress-nginx: command line"},
	{"", "", "ASPNETCORE_SHUTDOWNTIMEOUTSECONDS", "ASP.NET Core: host settings"},
	{"", "-wait-for-healthcheck-interval", "", "skipper: command line"},
	{"", "--wait-for-healthcheck-interval", "", "skipper: command line"},
}

// workerShutdown is nginx's directive, in its configuration or in -g.
var workerShutdown = regexp.MustCompile(`worker_shutdown_timeout\s+([0-9]+[smh]?)\s*;`)

// ingressShutdown is the same of ingress-nginx, in its ConfigMap.
var ingressShutdown = regexp.MustCompile(`(?m)^worker-shutdown-timeout: *"?([0-9]+[smh]?)"?$`)

// serverTimeouts: the server waits for its requests from its SIGTERM, which comes after the preStop hook.
func (l *linting) serverTimeouts() {
	l.containers(func(c *corev1.Container, path string) {
		words := words(c)
		hook, _ := carrier.Sleeps(l.ownHook(c))
		check := func(where, name string, wait time.Duration) {
			if hook+wait > l.grace {
				l.find("LC021", Warning, where, "%s: the server waits up to %v for its requests, after a preStop hook of %v, but the grace period is %v: SIGKILL cuts the requests that it waits for; set terminationGracePeriodSeconds to %v or more", name, wait, hook, l.grace, hook+wait+5*time.Second)
			}
		}
		for _, s := range servers {
			if s.program != "" && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, s.program) }) {
				continue
			}
			if d, ok := waitOf(argument(words, s.flag)); ok && s.flag != "" {
				check(path+".args", s.flag, d)
			}
			for _, e := range c.Env {
				if d, ok := waitOf(e.Value); ok && s.variable != "" && e.Name == s.variable {
					check(path+".env["+e.Name+"]", e.Name, d)
				}
			}
		}
		configs := strings.Join(l.Configs, "\n")
		m := workerShutdown.FindStringSubmatch(strings.Join(words, " ") + "\n" + configs)
		if m == nil {
			m = ingressShutdown.FindStringSubmatch(configs)
		}
		if m != nil {
			d, _ := waitOf(m[1])
			check(path, "nginx's worker_shutdown_timeout", d)
		}
	})
}

// words are those of a container's command line, with the scripts of shells, and of the variables that servers add to
// it.
func words(c *corev1.Container) []string {
	var all []string
	for _, arg := range slices.Concat(c.Command, c.Args) {
		all = append(all, strings.Fields(arg)...)
	}
	for _, e := range c.Env {
		switch e.Name {
		case "GUNICORN_CMD_ARGS", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS":
			all = append(all, strings.Fields(e.Value)...)
		}
	}
	return all
}

// waitOf is a number of seconds, or a duration.
func waitOf(text string) (time.Duration, bool) {
	text = strings.Trim(text, `"'`)
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1e6 {
		return time.Duration(n * float64(time.Second)), true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}
