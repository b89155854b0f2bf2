package pod

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"mvdan.cc/sh/v3/syntax"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
)

// server is a program, with its reaction to a signal. The reactions were measured (docs/http-servers.md) or are those
// of the program's documentation. One without a handler ignores the signal as PID 1, and exits by it otherwise.
type server struct {
	names  []string // of its program
	images []string // the last parts of images that run it
	stop   string   // the stop signal that these images set; empty: TERM
	reacts map[string]podend.Reaction
}

// The usual signals.
func reacts(term, interrupt, quit podend.Reaction) map[string]podend.Reaction {
	return map[string]podend.Reaction{"TERM": term, "INT": interrupt, "QUIT": quit}
}

var servers = []server{
	{[]string{"nginx", "openresty", "tengine"}, []string{"nginx", "nginx-unprivileged", "openresty", "kong"}, "QUIT",
		reacts(podend.Exits, podend.Exits, podend.Finishes)},
	{[]string{"php-fpm"}, nil, "QUIT", reacts(podend.Exits, podend.Exits, podend.ClosesPort)},
	// process_control_timeout decides
	{[]string{"httpd", "apache2", "httpd-foreground", "apache2-foreground"}, []string{"httpd"}, "WINCH",
		map[string]podend.Reaction{"TERM": podend.Exits, "INT": podend.Exits, "WINCH": podend.Finishes}},
	{[]string{"haproxy"}, []string{"haproxy"}, "USR1",
		map[string]podend.Reaction{"TERM": podend.Exits, "INT": podend.Exits, "USR1": podend.Finishes}},
	{[]string{"gunicorn"}, nil, "", reacts(podend.Finishes, podend.Exits, podend.Exits)},
	{[]string{"uvicorn"}, nil, "", reacts(podend.Finishes, podend.Finishes, podend.Exits)},
	{[]string{"hypercorn", "daphne"}, nil, "", reacts(podend.ClosesPort, podend.ClosesPort, podend.Exits)},
	{[]string{"puma", "pumactl"}, nil, "", reacts(podend.Finishes, podend.Finishes, podend.Exits)},
	{[]string{"unicorn"}, nil, "", reacts(podend.Exits, podend.Exits, podend.Finishes)},
	{[]string{"caddy", "frankenphp"}, []string{"caddy", "frankenphp"}, "",
		reacts(podend.Finishes, podend.Finishes, podend.Exits)},
	{[]string{"oauth2-proxy"}, []string{"oauth2-proxy"}, "",
		reacts(podend.ClosesPort, podend.ClosesPort, podend.Exits)},
	{[]string{"redis-server", "valkey-server"}, []string{"redis", "valkey"}, "", reacts(podend.Exits, podend.Exits,
		podend.Exits)},
	{[]string{"memcached"}, []string{"memcached"}, "", reacts(podend.Exits, podend.Exits, podend.Exits)},
	{[]string{"envoy"}, []string{"envoy"}, "", reacts(podend.Exits, podend.Exits, podend.Exits)},
	{[]string{"postgres"}, []string{"postgres"}, "INT", reacts(podend.ClosesPort, podend.Exits, podend.Exits)},
	{[]string{"traefik"}, []string{"traefik"}, "", reacts(podend.Unsure, podend.Unsure, podend.Exits)},
	// lifeCycle decides
	{[]string{"http.server"}, nil, "", reacts(podend.Ignores, podend.Exits, podend.Ignores)}, // Python's
	{[]string{"sleep", "tail"}, nil, "", reacts(podend.Ignores, podend.Ignores, podend.Ignores)},
}

// phps are Docker's official images of PHP: by the tag with PHP-FPM, or with Apache, which all but php itself have by
// default.
var phps = []string{"php", "wordpress", "nextcloud", "drupal", "joomla", "matomo", "mediawiki", "phpmyadmin"}

// runners are package managers that start the app below a shell of their own, which receives the signal and ends by it,
// and the manager with it: its server gets SIGKILL. Those of passers wait for a shell that has become the app.
var (
	runners = []string{"npm", "npx", "yarn", "pnpm"}
	passers = []string{"npm", "npx", "pnpm"}
)

// keepsShell matches what makes a shell react to a signal, or replaces it by a program: the manifest does not show that
// the app receives no SIGTERM then.
var keepsShell = regexp.MustCompile(`(?:^|[;&|({\s])(?:trap|exec)\s`)

// idle matches a command that serves no client and does no work.
var idle = regexp.MustCompile(`sleep\s+(?:infinity|[0-9]{4,}|inf)|tail\s+-[fF]`)

// Reacts is the reaction of a container's program to a signal, without SIG, and its reason: PID 1 gets it, or the
// program wherever it is. Unsure: the manifest does not show it.
func Reacts(spec *corev1.PodSpec, c *corev1.Container, signal string, isPID1 bool) (reaction podend.Reaction,
	why string) {
	signal = strings.TrimPrefix(signal, "SIG")
	switch signal {
	case "KILL":
		return podend.Exits, "SIGKILL"
	case "STOP":
		return podend.Ignores, "SIGSTOP"
	}
	if process, reaction := Front(spec, c, signal); isPID1 && process != "" {
		switch {
		case reaction == podend.Ignores && len(c.Command) == 0: // the image's entrypoint may be an init
			return podend.Unsure, ""
		case reaction == podend.Ignores:
			return reaction, process + " is PID 1 of " + c.Name + " and does not pass SIG" + signal + " on"
		}
		return reaction, process + " ends at SIG" + signal + ", and " + c.Name + " with it"
	}
	command := Program(c)
	if signal == "TERM" && len(command) > 0 && path.Base(command[0]) == "uwsgi" &&
		!slices.ContainsFunc(command, keepsTerm.MatchString) { // versions before 2.1
		return podend.Reloads, "uWSGI reloads at SIGTERM without --die-on-term"
	}
	reaction = podend.Unsure
	if s := serverOf(c, command); s != nil && s.reacts[signal] != "" {
		reaction, why = s.reacts[signal], s.names[0]
	}
	switch {
	case reaction != podend.Ignores:
	case !isPID1 || !isOwnPID1(spec, c):
		reaction = podend.Exits
	case len(c.Command) == 0: // below the image's entrypoint
		return podend.Unsure, ""
	default:
		why = path.Base(command[0]) + " is PID 1 of " + c.Name + " and does not handle SIG" + signal
	}
	return reaction, why
}

// IsIdle reports whether a container's command only waits, such as sleep infinity.
func IsIdle(c *corev1.Container) bool {
	return idle.MatchString(strings.Join(slices.Concat(c.Command, c.Args), " "))
}

// termNginx matches nginx's images before SIGQUIT became their stop signal, in November 2020: 1.18 was built again.
var termNginx = regexp.MustCompile(`\bnginx(?:-unprivileged)?:1\.(?:\d|1[0-7]|19\.[0-3])(?:[.@-]|$)`)

// FromLifecycle is the source of a stop signal that the manifest sets.
const FromLifecycle = "lifecycle.stopSignal"

// StopSignal is the signal that ends a container, and where it is set: an image's own is not in a manifest, but known
// of some.
func StopSignal(c *corev1.Container) (signal, source string) {
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		return string(*c.Lifecycle.StopSignal), FromLifecycle
	}
	if s := serverOf(c, nil); s != nil && s.stop != "" {
		if termNginx.MatchString(c.Image) {
			return "SIGTERM", "image " + c.Image
		}
		return "SIG" + s.stop, "image " + c.Image
	}
	return "SIGTERM", "default"
}

// serverOf is the server that a container runs: by its command, or else by its image; nil if that is unknown.
func serverOf(c *corev1.Container, command []string) *server {
	name, tag := split(c.Image)
	php := ""
	switch {
	case !slices.Contains(phps, name):
	case strings.Contains(tag, "fpm"):
		php = "php-fpm"
	case strings.Contains(tag, "apache"), name != "php" && !strings.Contains(tag, "cli"):
		php = "apache2-foreground"
	}
	i := slices.IndexFunc(servers, func(s server) bool {
		if len(command) > 0 {
			program := path.Base(command[0])
			return slices.Contains(s.names, program) && (program != "httpd" || name != "busybox")
		}
		isImage := slices.Contains(s.images, path.Base(name)) && !strings.Contains(name, "bitnami/")
		return isImage || php != "" && slices.Contains(s.names, php)
	})
	if i < 0 {
		return nil
	}
	return &servers[i]
}

// Program is the command that a container runs, as far as its manifest shows it: without wrappers, inits and the shell
// that it replaces. nil: the image's own.
func Program(c *corev1.Container) []string {
	command := slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 && (len(c.Args) == 0 || strings.HasPrefix(c.Args[0], "-")) {
		return nil
	}
	for range 5 {
		next := unwrapped(command)
		if len(next) == 0 {
			return command
		}
		command = next
	}
	return command
}

// unwrapped is the command that another one runs in its place; nil if it does not.
func unwrapped(command []string) []string {
	program := path.Base(command[0])
	if _, next, isOne := behind(program, command[1:]); isOne && program != "busybox" {
		return next
	}
	if strings.HasPrefix(program, "python") && len(command) > 2 && command[1] == "-m" {
		return command[2:]
	}
	last, _ := lastOf(command)
	return last
}

// lastOf is the last command of a shell's script, in words; nil if it is not a simple one. isAlone: it has the shell's
// outputs, and no command runs next to it.
func lastOf(command []string) (words []string, isAlone bool) {
	text, ok := ShellLine(command)
	if !ok || len(text) > maxScript {
		return nil, false
	}
	file, err := parse(text)
	if err != nil || len(file.Stmts) == 0 {
		return nil, false
	}
	s := file.Stmts[len(file.Stmts)-1]
	for b, ok := s.Cmd.(*syntax.BinaryCmd); ok && (b.Op == syntax.AndStmt || b.Op == syntax.OrStmt); {
		s = b.Y
		b, ok = s.Cmd.(*syntax.BinaryCmd)
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || s.Negated {
		return nil, false
	}
	isParallel := func(s *syntax.Stmt) bool { return s.Background }
	words = newReading(&corev1.PodSpec{}, &corev1.Container{}).fields(call.Args)
	return words, len(s.Redirs) == 0 && !slices.ContainsFunc(file.Stmts, isParallel)
}

// keepsTerm matches the arguments with which uWSGI ends at SIGTERM, and those with a file that may have such a setting.
var keepsTerm = regexp.MustCompile(`die-on-term|hook-master-start|exit-on-reload|\.(?:ini|ya?ml|xml)$`)

// isOwnPID1 reports whether a container's command is PID 1 itself.
func isOwnPID1(spec *corev1.PodSpec, c *corev1.Container) bool {
	return hasPID1(spec) && (len(c.Command) == 0 || !slices.Contains(inits, path.Base(c.Command[0])))
}

// Front describes a process that gets a container's stop signal and does not pass it on to the app, as far as the
// manifest shows, and what it does: as PID 1 a shell without a handler ignores the signal, elsewhere (below an init, or
// in a shared namespace) it ends by it, and the runtime kills the rest of the container. A package manager ends in any
// case. dash, the sh of Debian and Ubuntu, runs the commands of -c as children; bash, which is also the sh of Red Hat's
// images, and busybox, that of Alpine, become the last one.
func Front(spec *corev1.PodSpec, c *corev1.Container, signal string) (process string, reaction podend.Reaction) {
	process = childless(slices.Concat(c.Command, c.Args), becoming.MatchString(c.Image))
	manager, _, _ := strings.Cut(process, " ")
	switch signal = strings.TrimPrefix(signal, "SIG"); {
	case isOwnPID1(spec, c) && !slices.Contains(runners, manager) && signal != "KILL":
		return process, podend.Ignores
	case signal != "TERM" && signal != "QUIT": // a shell awaits its command at SIGINT
		return "", podend.Unsure
	}
	return process, podend.Exits
}

// becoming matches images whose sh becomes its last command.
var becoming = regexp.MustCompile(
	`redhat|\bubi|rhel|centos|fedora|rocky|almalinux|amazonlinux|oraclelinux|alpine|busybox`)

func childless(command []string, isBecoming bool) string {
	if len(command) == 0 {
		return ""
	}
	program := path.Base(command[0])
	_, next, isOne := behind(program, command[1:])
	switch {
	case isBecoming && slices.Contains(passers, program):
		return ""
	case slices.Contains(runners, program):
		return strings.Join(append([]string{program}, command[1:min(len(command), 3)]...), " ")
	case isOne:
		return childless(next, isBecoming || program == "busybox")
	}
	line, ok := ShellLine(command)
	line = strings.TrimSpace(line)
	if !ok || line == "" || keepsShell.MatchString(line) || idle.MatchString(line) {
		return ""
	}
	if program == "bash" || isBecoming && slices.Contains(plainShells, program) {
		last, isAlone := lastOf(command)
		if len(last) > 0 && isAlone && !strings.ContainsAny(strings.Join(last, " "), dynamic) &&
			!slices.Contains(pure, path.Base(last[0])) { // or an earlier one serves
			return childless(last, isBecoming)
		}
	}
	return program + " -c"
}

// ShellLine is the script of a shell's command line; false if it is none.
func ShellLine(command []string) (string, bool) {
	if len(command) > 1 && path.Base(command[0]) == "busybox" {
		command = command[1:]
	}
	if len(command) == 0 || !slices.Contains(shells, path.Base(command[0])) {
		return "", false
	}
	for i, arg := range command[1:] {
		if !strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "--") || !strings.HasSuffix(arg, "c") {
			continue
		}
		rest := command[i+2:]
		if len(rest) > 0 && rest[0] == "--" {
			rest = rest[1:]
		}
		if len(rest) > 0 {
			return rest[0], true
		}
	}
	return "", false
}

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
	row("cloudflared", `(?:tunnel-)?grace-period`, time.Second, "Cloudflare Tunnel, Run parameters: grace-period"),
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
		`(?:.*-)?(?:graceful-shutdown|shutdown|graceful-stop|termination)(?:-grace)?`+
			`(?:-timeout|-period|-duration|-delay|-wait|-limit)(?:-period|-time|-seconds|-secs|-s|-ms|-millis)?`,
		0, "its own name"),
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
	isBetween := func(c rune) bool { return strings.ContainsRune(" \t\n;'\"", c) }
	words := strings.FieldsFunc(strings.Join(slices.Concat(c.Command, c.Args), " "), isBetween)
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
