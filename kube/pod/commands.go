package pod

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
)

// quick are programs that return at once and leave the app alone; pure ones have no effect at all.
var (
	pure = []string{
		":", "true", "echo", "printf", "date", "set", "unset", "export", "readonly", "local", "shift", "umask", "trap",
		"hostname", "whoami", "id", "pwd", "seq", "basename", "dirname",
	}
	quick = []string{"touch", "rm", "mkdir", "cp", "mv", "chmod", "chown", "ln", "tee", "logger", "sync"}
	// asks are programs whose exit depends on what they find.
	asks = []string{
		"test", "[", "[[", "cd", "ls", "cat", "grep", "egrep", "fgrep", "pgrep", "pidof", "awk", "sed", "cut", "tr",
		"head", "wc", "sort", "uniq", "tail", "find", "netstat", "ss", "lsof", "which", "type", "command", "expr",
		"jq", "ip", "ps",
	}
	// waiting may take a time, and leave the app alone.
	waiting      = []string{"read", "nc", "netcat", "dig", "nslookup", "ping"}
	interpreters = []string{"python", "python3", "perl", "ruby", "powershell", "pwsh"}
	shells       = []string{"sh", "bash", "ash", "dash", "zsh", "ksh"}
	plainShells  = []string{"sh", "ash", "dash"} // dash on Debian and Ubuntu, busybox on Alpine, bash on Red Hat
)

// stoppers are the commands, besides signals, that end a server.
var stoppers = []struct {
	program string   // or several, separated by spaces
	words   []string // of which one is in its arguments
	stop    podend.Reaction
}{
	{"nginx openresty tengine", []string{"quit"}, podend.Finishes},
	{"nginx openresty tengine", []string{"stop"}, podend.Exits},
	{"apachectl apache2ctl httpd apache2", []string{"graceful-stop"}, podend.Finishes},
	{"apachectl apache2ctl httpd apache2", []string{"stop"}, podend.Exits},
	{"kong", []string{"quit"}, podend.Finishes},
	{"kong", []string{"stop"}, podend.Exits},
	{"caddy", []string{"stop"}, podend.Finishes},
	{"redis-cli valkey-cli", []string{"shutdown"}, podend.Exits},
	{"mysqladmin mariadb-admin", []string{"shutdown"}, podend.ClosesPort},
	{"pg_ctl pg_ctlcluster", []string{"stop"}, podend.ClosesPort},
	{"rabbitmqctl", []string{"stop", "stop_app", "shutdown"}, podend.ClosesPort},
	{"nodetool", []string{"drain", "stopdaemon"}, podend.ClosesPort},
	{"nats-server", []string{"quit", "stop", "ldm"}, podend.ClosesPort},
	{"consul", []string{"leave"}, podend.ClosesPort},
	{"supervisorctl pm2", []string{"stop", "shutdown", "kill", "delete"}, podend.Unsure},
	{"service systemctl", []string{"stop"}, podend.Unsure},
	{"catalina.sh asadmin", []string{"stop", "stop-domain"}, podend.ClosesPort},
	{"uwsgi", []string{"--stop"}, podend.Exits},
	{"pumactl", []string{"stop", "halt"}, podend.ClosesPort},
}

// interpreted matches a script of an interpreter that only sleeps.
var interpreted = regexp.MustCompile(
	`(?i)^(?:-[ce] (?:(?:import time|from time import sleep); ?)?(?:time\.)?sleep[ (]+|` +
		`(?:-\S+ (?:\w+ )?)*(?:start-)?sleep (?:-s\w* )?)([0-9.]+)\)?;?$`)

// call reads one command.
func (r *reading) call(args []string) result {
	if len(args) == 0 {
		return succeeds
	}
	text := strings.ReplaceAll(strings.Join(args, " "), dynamic, "…")
	program := path.Base(args[0])
	if strings.Contains(args[0], dynamic) {
		return r.unknown(text)
	}
	if body := r.funcs[args[0]]; body != nil {
		outer := r.args
		r.args = args
		out := r.statement(body)
		if r.args = outer; r.returns {
			r.exits, r.returns = false, false
		}
		return out
	}
	if strings.ContainsAny(args[0], " \t\n") {
		return r.fail("there is no program called " + strconv.Quote(args[0]) +
			": each argument is an item, and in a shell a word, of its own")
	}
	if why := lacks(r.spec, r.container.Image, args[0], r.commands); why != "" {
		return r.fail(why)
	}
	r.awaitsSockets = r.awaitsSockets || program == "netstat" || program == "ss"
	r.traps = r.traps || program == "trap"
	rest := args[1:]
	switch {
	case program == "trap" && len(rest) > 1 && rest[0] != "" &&
		(slices.Contains(rest[1:], "EXIT") || slices.Contains(rest[1:], "0")):
		return r.unknown(text) // at the end of the script
	case program == "exit":
		r.exits = true
		return status(rest)
	case program == "return":
		r.exits, r.returns = true, true
		return status(rest)
	case program == "break", program == "continue":
		r.breaks, r.isContinue = true, program == "continue"
		return succeeds
	case program == "false":
		return fails
	case program == "sleep":
		return r.sleep(rest)
	case program == "usleep": // microseconds; only busybox and Red Hat's images have it
		us, err := strconv.ParseInt(strings.Join(rest, " "), 10, 32)
		if err != nil {
			return r.unknown(text)
		}
		r.add(Step{Do: Unknown, Most: max(1, time.Duration(us)*time.Microsecond), Text: text})
		return open
	case program == "wait":
		return r.wait()
	case program == "set" && len(rest) > 0 && strings.HasPrefix(rest[0], "-") && strings.Contains(rest[0], "e"):
		r.errexit = true
		return succeeds
	case (program == "test" || program == "[") && len(rest) >= 3:
		return compare(rest)
	case program == "tail" && slices.ContainsFunc(rest, func(a string) bool { return strings.HasPrefix(a, "--pid") }):
		r.add(Step{Do: Unknown, Text: text}) // until that process ends
		return open
	case program == "tail" && slices.ContainsFunc(rest, func(a string) bool { return a == "-f" || a == "-F" }):
		r.add(Step{Do: Sleep, For: Forever})
		return open
	case slices.Contains(shells, program):
		return r.shell(program, rest, text)
	case program == "kill", program == "pkill", program == "killall":
		return r.kill(program, rest, text)
	case program == "curl", program == "wget":
		return r.fetch(rest, text)
	case slices.Contains(pure, program):
		if program == "shift" || program == "set" {
			r.args, r.round = nil, program
		}
		return succeeds
	case slices.Contains(quick, program):
		r.add(Step{Do: Runs, Text: text})
		return succeeds
	case slices.Contains(asks, program) && (program != "command" || slices.Contains(rest, "-v")):
		return open
	}
	m := interpreted.FindStringSubmatch(strings.Join(rest, " "))
	name := strings.TrimSuffix(strings.ToLower(program[strings.LastIndex(program, `\`)+1:]), ".exe")
	if m != nil && slices.Contains(interpreters, name) {
		return r.sleep(m[1:])
	}
	if slices.Contains(waiting, program) {
		r.add(Step{Do: Unknown, Text: text})
		return open
	}
	if is, out := r.wrapped(program, rest, text); is {
		return out
	}
	return r.stopper(program, rest, text)
}

// status is the exit that the operand of exit or return sets.
func status(args []string) result {
	switch {
	case len(args) == 0:
		return open
	case args[0] == "0":
		return succeeds
	}
	return fails
}

// stopper reads a command of a server.
func (r *reading) stopper(program string, args []string, text string) result {
	isServer := false
	for _, s := range stoppers {
		if !slices.Contains(strings.Fields(s.program), program) {
			continue
		}
		isServer = true
		if !slices.ContainsFunc(args, func(a string) bool { return slices.Contains(s.words, a) }) {
			continue
		}
		if program == "kong" { // it waits before it begins
			wait := cmp.Or(Argument(args, "-w"), Argument(args, "--wait"))
			if d, _ := sleeps([]string{wait}); d > 0 {
				r.add(Step{Do: Sleep, For: d})
			}
		}
		r.add(Step{Do: Signal, Stop: s.stop, Text: text})
		return succeeds
	}
	isHarmless := func(a string) bool { return slices.Contains([]string{"reload", "reopen", "graceful", "-t"}, a) }
	if isServer && slices.ContainsFunc(args, isHarmless) {
		r.add(Step{Do: Runs, Text: text})
		return succeeds
	}
	return r.unknown(text)
}

func (r *reading) sleep(args []string) result {
	for _, a := range args {
		if strings.Contains(a, dynamic) {
			r.add(Step{Do: Unknown, Text: "sleep with a time that the manifest does not show"})
			return succeeds
		}
	}
	d, bad := sleeps(args)
	switch {
	case len(args) == 0:
		return r.fail("sleep has no operand: in the list of a shell's command, all of the script is one item")
	case bad != "":
		return r.fail("sleep refuses " + strconv.Quote(bad) + ", which is no time, and returns at once")
	}
	r.add(Step{Do: Sleep, For: d})
	return succeeds
}

// shell reads a shell's arguments: -c and a script, or a file.
func (r *reading) shell(program string, args []string, text string) result {
	for i, a := range args {
		switch {
		case a == "-o" || a == "+o" || i > 0 && (args[i-1] == "-o" || args[i-1] == "+o") || strings.HasPrefix(a, "--"):
		case strings.HasPrefix(a, "-") && strings.Contains(a, "c"):
			rest := args[i+1:]
			for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
				rest = rest[1:]
			}
			switch {
			case strings.ContainsFunc(a[1:], func(c rune) bool { return !unicode.IsLetter(c) }):
				return r.fail("the shell has no option " + a)
			case len(rest) == 0:
				return r.fail("the shell's -c has no script")
			case strings.Contains(rest[0], dynamic):
				return r.unknown(text)
			}
			return r.inside(func(child *reading) result {
				child.errexit = strings.Contains(a, "e")
				if child.args = rest[1:]; len(rest) == 1 {
					child.args = []string{program}
				}
				return child.script(rest[0], program)
			})
		case strings.HasPrefix(a, "-"):
		case strings.Contains(a, " "):
			return r.fail("without -c the shell takes " + strconv.Quote(a) + " for the name of a file")
		default:
			return r.unknown(text)
		}
	}
	return r.fail("the shell has no script, and reads an empty input")
}

// shellless are parts of the names of images without a shell, and without the usual programs.
var shellless = []string{
	"distroless", "/static", "scratch", "chiseled", "chainguard/", "cgr.dev/", "/sig-storage/", "/llm-d-router",
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
	"echo", "true", "touch", "cat", "busybox", "nginx", "test", "rm",
}

// unix are those of them that Windows lacks.
var unix = slices.DeleteFunc(slices.Clone(external), func(program string) bool {
	return slices.Contains([]string{"curl", "netstat", "timeout", "echo", "nginx"}, program)
})

// lacks is why an image does not have a program; empty if it may have it. commands is not 0 within a shell, which has
// some of the programs itself.
func lacks(spec *corev1.PodSpec, image, program string, commands *int) string {
	name, tag := split(image)
	base := path.Base(program)
	isAlpine := strings.Contains(tag, "alpine") || name == "alpine" || name == "busybox"
	has := func(part string) bool { return strings.Contains(tag, part) }
	isShellless := func(part string) bool { return strings.Contains(name, part) || has(part) }
	isBare := slices.ContainsFunc(shellless, isShellless) && !slices.ContainsFunc(shellTags, has)
	isLean := !isAlpine && (slices.Contains(lean, name) || slices.Contains(official, name) && has("slim"))
	switch {
	case IsWindows(spec) && slices.Contains(unix, base):
	case isBare && *commands == 0 && slices.Contains(external, base):
	case isLean && slices.Contains(tools, base):
	case isLean && slices.Contains(fetchers, base) && name != "nginx" && name != "php":
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
