package pod

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"mvdan.cc/sh/v3/syntax"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
)

// server is a program, with its reaction to a signal. The reactions were measured (docs/http-servers.md) or are those
// of the program's documentation.
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
	{[]string{"nginx", "openresty", "tengine"}, []string{"nginx", "nginx-unprivileged", "openresty"}, "QUIT",
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
	{[]string{"caddy"}, []string{"caddy"}, "", reacts(podend.Finishes, podend.Finishes, podend.Exits)},
	{[]string{"oauth2-proxy"}, []string{"oauth2-proxy"}, "", reacts(podend.ClosesPort, podend.ClosesPort, podend.Exits)},
	{[]string{"redis-server", "valkey-server"}, []string{"redis", "valkey"}, "", reacts(podend.Exits, podend.Exits,
		podend.Exits)},
	{[]string{"memcached"}, []string{"memcached"}, "", reacts(podend.Exits, podend.Exits, podend.Exits)},
	{[]string{"envoy"}, []string{"envoy"}, "", reacts(podend.Exits, podend.Exits, podend.Exits)},
	{[]string{"postgres"}, []string{"postgres"}, "INT", reacts(podend.ClosesPort, podend.Exits, podend.Exits)},
	{[]string{"pgbouncer"}, []string{"pgbouncer"}, "", reacts(podend.Unsure, podend.Unsure, podend.Unsure)}, // by version
	{[]string{"traefik"}, []string{"traefik"}, "", reacts(podend.Unsure, podend.Unsure, podend.Exits)},
	// lifeCycle decides
}

// phps are Docker's official images of PHP: by the tag with PHP-FPM, or with Apache, which all but php itself have by
// default.
var phps = []string{"php", "wordpress", "nextcloud", "drupal", "joomla", "matomo", "mediawiki", "phpmyadmin"}

// runners are package managers that start the app below a shell of their own: npm's sh -c receives the signal and does
// not pass it on.
var runners = []string{"npm", "npx", "yarn", "pnpm"}

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
	if process := ShellAsPID1(spec, c); isPID1 && process != "" {
		return podend.Ignores, process + " is PID 1 of " + c.Name + " and does not pass SIG" + signal + " on"
	}
	command := Program(c)
	if isReloading(command) && signal == "TERM" {
		return podend.Reloads, "uWSGI reloads at SIGTERM without --die-on-term"
	}
	if s := serverOf(c, command); s != nil {
		if r, isKnown := s.reacts[signal]; isKnown {
			return r, s.names[0]
		}
	}
	return podend.Unsure, ""
}

// IsIdle reports whether a container's command only waits, such as sleep infinity.
func IsIdle(c *corev1.Container) bool {
	return idle.MatchString(strings.Join(slices.Concat(c.Command, c.Args), " "))
}

// FromLifecycle is the source of a stop signal that the manifest sets.
const FromLifecycle = "lifecycle.stopSignal"

// StopSignal is the signal that ends a container, and where it is set: an image's own is not in a manifest, but known
// of some.
func StopSignal(c *corev1.Container) (signal, source string) {
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		return string(*c.Lifecycle.StopSignal), FromLifecycle
	}
	if s := serverOf(c, nil); s != nil && s.stop != "" {
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
			return slices.Contains(s.names, path.Base(command[0]))
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
	switch {
	case slices.Contains([]string{"tini", "dumb-init", "exec", "env", "docker-php-entrypoint", "docker-entrypoint.sh",
		"nohup", "poetry",
		"uv", "pipenv", "bundle", "gosu", "su-exec", "catatonit"}, program):
		rest := command[1:]
		for len(rest) > 0 && (strings.HasPrefix(rest[0], "-") || rest[0] == "run" || rest[0] == "exec" ||
			strings.Contains(rest[0], "=")) {
			rest = rest[1:]
		}
		if (program == "gosu" || program == "su-exec") && len(rest) > 0 {
			rest = rest[1:]
		}
		return rest
	case strings.HasPrefix(program, "python") && len(command) > 2 && command[1] == "-m":
		return command[2:]
	case strings.HasPrefix(program, "ruby") && len(command) > 1:
		return nil
	}
	commands, _ := scriptOf(command)
	if len(commands) == 0 {
		return nil
	}
	return commands[len(commands)-1]
}

// scriptOf are the commands of a shell's script that run one after the other, each in words, and whether it has others
// or redirects them; none if it is no shell's.
func scriptOf(command []string) (commands [][]string, hasOthers bool) {
	text, ok := ShellLine(command)
	if !ok || len(text) > maxScript {
		return nil, false
	}
	file, err := parse(text)
	if err != nil {
		return nil, false
	}
	var add func(s *syntax.Stmt)
	r := newReading(&corev1.PodSpec{}, &corev1.Container{})
	add = func(s *syntax.Stmt) {
		hasOthers = hasOthers || s.Background || len(s.Redirs) > 0
		switch c := s.Cmd.(type) {
		case *syntax.DeclClause:
		case *syntax.CallExpr:
			if words := r.fields(c.Args); len(words) > 0 {
				commands = append(commands, words)
			}
		case *syntax.BinaryCmd:
			if c.Op == syntax.AndStmt || c.Op == syntax.OrStmt {
				add(c.X)
				add(c.Y)
			} else {
				hasOthers = true
			}
		default:
			hasOthers = true
		}
	}
	for _, s := range file.Stmts {
		add(s)
	}
	return commands, hasOthers
}

// isReloading reports whether a command is a uWSGI that takes SIGTERM for a reload, as versions before 2.1 do.
func isReloading(command []string) bool {
	if len(command) == 0 || path.Base(command[0]) != "uwsgi" {
		return false
	}
	return !slices.ContainsFunc(command, keepsTerm.MatchString)
}

// keepsTerm matches the arguments with which uWSGI ends at SIGTERM, and those with a file that may have such a setting.
var keepsTerm = regexp.MustCompile(`die-on-term|hook-master-start|exit-on-reload|\.(?:ini|ya?ml|xml)$`)

// ShellAsPID1 describes a process that becomes PID 1 of its container and does not pass SIGTERM on to the app, as far
// as the manifest shows; empty if there is none. As PID 1 a process without a handler ignores the signal. dash and
// busybox (the sh of Debian, Ubuntu and Alpine) run the commands of -c as children; bash, which is also the sh of Red
// Hat's images, becomes its last command.
func ShellAsPID1(spec *corev1.PodSpec, c *corev1.Container) string {
	if SharesProcesses(spec) {
		return "" // PID 1 is the pod's pause process
	}
	return childless(slices.Concat(c.Command, c.Args))
}

func childless(command []string) string {
	if len(command) == 0 {
		return ""
	}
	program := path.Base(command[0])
	if slices.Contains(runners, program) {
		return strings.Join(command[:min(len(command), 3)], " ")
	}
	line, ok := ShellLine(command)
	line = strings.TrimSpace(line)
	if !ok || line == "" || keepsShell.MatchString(line) || idle.MatchString(line) {
		return ""
	}
	if program == "bash" {
		commands, hasOthers := scriptOf(command)
		if n := len(commands); n > 0 && !hasOthers && !strings.ContainsAny(strings.Join(commands[n-1], " "), dynamic) {
			if last := commands[n-1]; !slices.Contains(pure, path.Base(last[0])) { // or an earlier one serves
				return childless(last)
			}
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
