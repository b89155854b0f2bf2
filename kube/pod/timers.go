package pod

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Timer is how long a server waits at its end, as its arguments or variables set it.
type Timer struct {
	Name   string // of the flag or variable
	Wait   time.Duration
	Source string // where its meaning is documented
}

// timer is a row of timers: which flag or variable of which program sets it.
type timer struct {
	program string         // a part of the program's or image's name; empty for each
	name    *regexp.Regexp // of the flag or variable, in lower case, with - for _ and .
	unit    time.Duration  // of a number without one; 0: such a number is not read
	source  string
}

func row(program, name string, unit time.Duration, source string) timer {
	return timer{program, regexp.MustCompile(`^(?:` + name + `)$`), unit, source}
}

// timers are the settings of servers for their own end.
var timers = []timer{
	row("gunicorn", `graceful-timeout`, time.Second, "gunicorn, Settings: graceful_timeout"),
	row("uvicorn", `(?:uvicorn-)?timeout-graceful-shutdown`, time.Second, "uvicorn, Settings: Timeouts"),
	row("hypercorn", `graceful-timeout|shutdown-timeout`, time.Second, "Hypercorn, Configuring: graceful_timeout"),
	row("daphne", `application-close-timeout`, time.Second, "daphne --help"),
	row("sidekiq", `t|timeout|sidekiq-timeout`, time.Second, "Sidekiq's wiki, Signals: TERM"),
	row("celery", `time-limit|soft-time-limit|celery-?d?-task-time-limit`, time.Second,
		"Celery, Workers Guide: warm shutdown waits for the tasks"),
	row("puma", `(?:puma-)?(?:worker-shutdown-timeout|force-shutdown-after)`, time.Second, "Puma's DSL"),
	row("traefik", `.*lifecycle-gracetimeout|.*lifecycle-requestacceptgracetimeout`, time.Second,
		"Traefik, EntryPoints: lifeCycle"),
	row("cloudflared", `grace-period|tunnel-grace-period`, time.Second, "Cloudflare Tunnel, Run parameters: grace-period"),
	row("haproxy", `hard-stop-after`, time.Millisecond, "HAProxy, Configuration Manual: hard-stop-after"),
	row("caddy", `grace-period|shutdown-delay`, 0, "Caddy, Global options: grace_period"),
	row("daprd", `dapr-graceful-shutdown-seconds|dapr-block-shutdown-duration`, time.Second,
		"Dapr, Arguments and annotations"),
	row("temporal", `.*shutdown-?drain-?duration|.*worker-stop-timeout`, time.Second,
		"Temporal, Cluster configuration: shutdownDrainDuration"),
	row("apisix", `.*worker-shutdown-timeout`, time.Second, "nginx, Core functionality: worker_shutdown_timeout"),
	row("kong", `kong-nginx-main-worker-shutdown-timeout`, time.Millisecond, "Kong, Configuration: nginx directives"),
	row("nginx", `worker-shutdown-timeout`, time.Millisecond, "nginx, Core functionality: worker_shutdown_timeout"),
	row("ingress", `shutdown-grace-period|post-shutdown-grace-period`, time.Second,
		"ingress-nginx, Command line arguments"),
	row("uwsgi", `(?:worker-|gateway-)?reload-mercy`, time.Second, "uWSGI, Options: reload-mercy"),
	row("skipper", `wait-for-healthcheck-interval`, 0, "Skipper, Operation"),
	row("apiserver", `shutdown-delay-duration`, 0, "kube-apiserver, Options"),
	row("coredns", `lameduck`, 0, "CoreDNS, plugin health: lameduck"),
	row("", `spring-lifecycle-timeout-per-shutdown-phase`, time.Millisecond, "Spring Boot, Graceful Shutdown"),
	row("", `quarkus-shutdown-timeout|quarkus-shutdown-delay`, time.Second, "Quarkus, All configuration options"),
	row("", `(?:aspnetcore|dotnet)-shutdowntimeoutseconds`, time.Second, "ASP.NET Core, Web Host: Shutdown timeout"),
	row("",
		`(?:.*-)?(?:graceful-shutdown|shutdown|graceful-stop|termination)(?:-grace)?(?:-timeout|-period|-duration|-delay|-wait|-limit)`+
			`(?:-period|-time|-seconds|-secs|-s|-ms|-millis)?`, 0, "its own name"),
}

// sequential are programs whose timers follow each other.
var sequential = []string{"traefik", "daprd", "ingress"}

var (
	dashes    = strings.NewReplacer("_", "-", ".", "-")
	inSeconds = regexp.MustCompile(`-(?:seconds|secs|s)$`)
	inMillis  = regexp.MustCompile(`-(?:ms|millis)$`)
	// isArguments matches the variables with more arguments, such as JAVA_OPTS_APPEND.
	isArguments = regexp.MustCompile(`_(?:ARGS|OPTS|OPTIONS)(?:_|$)`)
)

// TimersOf are the timers that a container's arguments and variables set.
func TimersOf(c *corev1.Container) (found []Timer) {
	name, _ := split(c.Image)
	program := Program(c)
	name = path.Base(name) + " " + strings.Join(program[:min(len(program), 2)], " ")
	var words []string
	for _, arg := range slices.Concat(c.Command, c.Args) {
		words = append(words, strings.FieldsFunc(arg, func(c rune) bool { return strings.ContainsRune(" \t\n;'\"", c) })...)
	}
	for _, e := range c.Env {
		if isArguments.MatchString(e.Name) {
			words, name = append(words, strings.Fields(e.Value)...), name+" "+strings.ToLower(e.Name)
		}
	}
	add := func(setting, value string) {
		key := dashes.Replace(strings.ToLower(strings.TrimLeft(strings.TrimPrefix(setting, "-D"), "-")))
		for _, t := range timers {
			if t.program != "" && !strings.Contains(name+" "+key, t.program) || !t.name.MatchString(key) {
				continue
			}
			unit := t.unit
			switch {
			case unit > 0:
			case inSeconds.MatchString(key):
				unit = time.Second
			case inMillis.MatchString(key):
				unit = time.Millisecond
			}
			d, ok := duration(value, unit)
			n := len(found) - 1
			switch {
			case !ok:
			case n >= 0 && found[n].Source == t.source && slices.Contains(sequential, t.program):
				found[n].Name, found[n].Wait = found[n].Name+" and "+setting, found[n].Wait+d
			default:
				found = append(found, Timer{setting, d, t.source})
			}
			return
		}
	}
	for i, w := range words {
		flag, value, isOne := strings.Cut(w, "=")
		isFlag := strings.HasPrefix(flag, "-") || flag == "worker_shutdown_timeout" || flag == "lameduck" ||
			flag == "hard-stop-after"
		if !isOne && i+1 < len(words) {
			value = words[i+1]
		}
		if isFlag {
			add(flag, value)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			add(e.Name, e.Value)
		}
	}
	return found
}

// duration reads 60, 60s, 1m30s, PT60S and 500ms; a number alone has the unit.
func duration(text string, unit time.Duration) (time.Duration, bool) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(n * float64(unit)), unit > 0 && n >= 0 && n < 1e7
	}
	d, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(text, "PT")))
	return d, err == nil && d >= 0
}
