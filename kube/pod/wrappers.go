package pod

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
)

// operands are programs that run another one, and how many words of their own stand before it: those that it replaces,
// those that pass signals on to it (inits), and builtins of a shell.
var operands = map[string]int{
	"exec": 0, "env": 0, "nohup": 0, "setsid": 0, "nice": 0, "ionice": 0, "stdbuf": 0, "time": 0, "command": 0,
	"tini": 0, "dumb-init": 0, "catatonit": 0, "docker-init": 0, "busybox": 0, "eval": 0, "builtin": 0, "xargs": 0,
	"sudo": 0, "runuser": 0, "su": 0, "docker-php-entrypoint": 0, "docker-entrypoint.sh": 0, "bundle": 0, "poetry": 0,
	"uv": 0, "pipenv": 0, "ddtrace-run": 0, "opentelemetry-instrument": 0, "newrelic-admin": 0,
	"timeout": 1, "gosu": 1, "su-exec": 1, "chroot": 1, "setpriv": 1,
}

var (
	// inits stay in front of the program.
	inits = []string{"tini", "dumb-init", "catatonit", "docker-init", "timeout", "sudo", "su", "runuser", "uv"}
	// subcommands stand before it.
	subcommands = []string{"run", "exec", "run-program"}
	// valued are options, behind their program, that a value follows.
	valued = []string{"timeout-s", "timeout--signal", "timeout-k", "nice-n", "xargs-n", "xargs-I", "sudo-u", "env-u",
		"tini-p", "dumb-init-r", "dumb-init--rewrite", "uv--with", "uv--project"}
)

// behind is the command that a program runs with these arguments, and its own word; false for programs that run none.
func behind(program string, args []string) (own string, command []string, isOne bool) {
	n, isOne := operands[program]
	sets := slices.Contains([]string{"env", "sudo", "runuser", "su"}, program)
	if i := slices.Index(args, "-c"); sets && i >= 0 && i+1 < len(args) {
		return "", []string{"sh", "-c", args[i+1]}, true
	}
	for isOne && len(args) > 0 && (strings.HasPrefix(args[0], "-") || slices.Contains(subcommands, args[0]) ||
		sets && strings.Contains(args[0], "=")) {
		if slices.Contains(valued, program+args[0]) && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	if n == 1 && len(args) > 0 {
		own, args = args[0], args[1:]
	}
	return own, args, isOne
}

// wrapped reads a command that runs another one, if it is one.
func (r *reading) wrapped(program string, args []string, text string) (is bool, out result) {
	own, command, isOne := behind(program, args)
	switch {
	case !isOne:
		return false, open
	case program == "timeout" && IsWindows(r.spec):
		return true, r.fail("timeout ends at once on Windows without a console, which a hook has not")
	case program == "timeout" && len(command) == 0:
		return true, r.fail("timeout has no command to run")
	case len(command) == 0:
		return true, succeeds
	case program == "timeout":
		return true, r.limited(own, command, text)
	case program == "eval":
		return true, r.script(strings.Join(command, " "), "")
	case program == "xargs": // adds words that it reads
		return true, r.call(append(slices.Clone(command), dynamic))
	}
	out = r.call(command)
	r.exits = r.exits || program == "exec"
	return true, out
}

// limited reads timeout and its command.
func (r *reading) limited(limit string, command []string, text string) result {
	d, bad := sleeps([]string{limit})
	child := r.fork()
	out := child.call(command)
	r.awaitsSockets = r.awaitsSockets || child.awaitsSockets
	h := summarize(child.steps)
	switch {
	case strings.Contains(limit, dynamic):
		return r.unknown(text)
	case bad != "":
		return r.fail("timeout refuses " + strconv.Quote(bad) + ", which is no time")
	case h.IsKnown && h.Duration <= d:
		r.add(child.steps...)
		return out
	case child.traps && !strings.Contains(text, "KILL") && !strings.Contains(text, "-9"):
		r.add(Step{Do: Unknown, For: min(h.Duration, d), MayStop: h.ends(), Text: text})
		return open
	case h.IsKnown && !h.Stops:
		r.add(Step{Do: Sleep, For: d})
		return fails
	}
	r.add(Step{Do: Unknown, For: min(h.Duration, d), Most: max(time.Nanosecond, d), MayStop: h.ends(),
		Text: text})
	return open
}

// compare evaluates a comparison.
func compare(args []string) result {
	x, op, y := args[0], args[1], args[2]
	if strings.Contains(x+y, dynamic) || len(args) > 4 {
		return open
	}
	a, errA := strconv.Atoi(x)
	b, errB := strconv.Atoi(y)
	isTrue := map[string]bool{
		"=": x == y, "==": x == y, "!=": x != y, "-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b,
		"-gt": a > b, "-ge": a >= b,
	}
	holds, isOne := isTrue[op]
	switch {
	case !isOne || strings.HasPrefix(op, "-") && (errA != nil || errB != nil):
		return open
	case holds:
		return succeeds
	}
	return fails
}

// kill reads a command that sends a signal.
func (r *reading) kill(program string, args []string, text string) result {
	signal, isSet, targets := "TERM", false, []string{}
	for i := 0; i < len(args); i++ {
		a := args[i]
		name := strings.TrimPrefix(strings.ToUpper(strings.TrimLeft(a, "-")), "SIG")
		switch {
		case isSet && strings.HasPrefix(a, "-") && a != "--":
			return r.unknown(text) // a group of processes
		case (a == "-s" || a == "--signal" || a == "-n") && i+1 < len(args):
			i++
			signal, isSet = strings.TrimPrefix(strings.ToUpper(args[i]), "SIG"), program == "kill"
		case strings.HasPrefix(a, "--signal="):
			signal = strings.TrimPrefix(strings.ToUpper(a[len("--signal="):]), "SIG")
		case strings.HasPrefix(a, "-") && (signals[name] != "" || program == "kill" && len(a) > 1 && a != "--"):
			signal, isSet = name, program == "kill"
		case !strings.HasPrefix(a, "-"):
			targets = append(targets, a)
		}
	}
	if number := signals[signal]; number != "" {
		signal = number
	}
	if program == "kill" && len(targets) > 0 && signal != "0" && signal != "L" {
		switch isOwn := func(t string) bool { return t == ownShell || t == ownChild }; {
		case slices.Contains(targets, ownShell):
			r.exits = true
			return fails
		case !slices.ContainsFunc(targets, func(t string) bool { return !isOwn(t) }):
			return succeeds
		}
	}
	isOne := program == "kill" && slices.Contains(targets, "1")
	switch {
	case signal == "0" || signal == "L" || len(targets) == 0:
		return open
	case isOne && SharesProcesses(r.spec) && (signal == "TERM" || signal == "INT"):
		return r.unknown(text) // the pause process, whose end is that of the pod, if the user may send it
	case isOne && (signal == "KILL" || signal == "STOP" || !hasPID1(r.spec)): // PID 1 gets neither itself
		r.add(Step{Do: Runs, Text: text})
		return succeeds
	case !isOne && program == "kill" && !strings.Contains(strings.Join(targets, " "), dynamic):
		return r.unknown(text) // a process by its number
	case !slices.Contains([]string{"TERM", "INT", "QUIT", "KILL", "WINCH", "USR1"}, signal):
		return r.unknown(text)
	}
	reaction, _ := Reacts(r.spec, r.container, signal, isOne)
	switch {
	case signal == "USR1" || signal == "WINCH":
		if reaction == podend.Unsure {
			return r.unknown(text)
		}
	case signal == "KILL":
		reaction = podend.Exits
	}
	if reaction == podend.Ignores {
		r.add(Step{Do: Runs, Text: text})
		return succeeds
	}
	r.add(Step{Do: Signal, Stop: reaction, By: signal, Text: text})
	return succeeds
}

// signals are the usual signals, by name and number.
var signals = map[string]string{
	"0": "0", "L": "L", "HUP": "HUP", "1": "HUP", "INT": "INT", "2": "INT", "QUIT": "QUIT", "3": "QUIT", "KILL": "KILL",
	"9":    "KILL",
	"USR1": "USR1", "10": "USR1", "USR2": "USR2", "12": "USR2", "TERM": "TERM", "15": "TERM", "CONT": "CONT",
	"STOP":  "STOP",
	"WINCH": "WINCH", "28": "WINCH",
}

// address matches a URL, or one without its scheme.
var address = regexp.MustCompile(`^(?:https?://)?([^/?\s{}'"]+)(/[^\s]*)?$`)

// method matches what sets another method than GET.
var method = regexp.MustCompile(`^(?:-X|--request=|--method=)?(?:POST|PUT|DELETE)$`)

// fetch reads a request by curl or wget.
func (r *reading) fetch(args []string, text string) result {
	isPost := slices.ContainsFunc(args, func(a string) bool {
		return a == "-d" || strings.HasPrefix(a, "--data") || strings.HasPrefix(a, "--post-") || method.MatchString(a)
	})
	for i, a := range args {
		m := address.FindStringSubmatch(a)
		isValue := i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(a, ":")
		if strings.HasPrefix(a, "-") || m == nil || m[2] == "" || isValue && !strings.HasPrefix(a, "localhost/") {
			continue
		}
		name, port, err := net.SplitHostPort(m[1])
		if err != nil {
			name = m[1]
		}
		n, _ := strconv.Atoi(port)
		return r.request(name, n, m[2], !isPost, text)
	}
	r.add(Step{Do: Unknown, Text: text})
	return open
}

// ends matches the part of a path that ends a server.
var ends = regexp.MustCompile(`(?i)^(?:(?:graceful|force|do|server|app)?[-_]?(?:shutdown|quit|quitquitquit|stop|` +
	`exit|terminate|kill)(?:[-_]?(?:now|gracefully|server|app))?|abortabortabort)$`)

// admins are ports of meshes' proxies, whose end is not the app's.
var admins = []int{istio.AdminPort, istio.StatusPort, istio.HealthPort, 4190, LinkerdAdminPort, 19000, 3500}

// isLoopback reports whether a host is the machine of the client.
func isLoopback(host string) bool {
	return slices.Contains([]string{"localhost", "0.0.0.0", "::1", "[::1]"}, host) || strings.HasPrefix(host, "127.")
}

// request reads an HTTP request.
func (r *reading) request(host string, port int, at string, isGet bool, text string) result {
	isOwn := host == "" || isLoopback(host) || strings.Contains(host, dynamic)
	where, query := at, ""
	if u, err := url.Parse(at); err == nil {
		where, query = u.Path, u.RawQuery
	}
	parts := strings.FieldsFunc(where, func(c rune) bool { return c == '/' })
	isEnd := slices.ContainsFunc(parts, ends.MatchString)
	switch {
	case isOwn && at == knativeWait:
		r.add(Step{Do: Unknown, For: knativeQuiet, Text: text})
		return open
	case isOwn && isGet && strings.HasSuffix(where, "/actuator/shutdown"):
		return r.fail("Spring Boot's /actuator/shutdown takes POST alone, and answers 405 to GET")
	case isOwn && isEnd && !slices.Contains(admins, port) && !r.isOthers(port):
		reaction, _ := Reacts(r.spec, r.container, "TERM", false)
		if reaction == podend.Ignores || reaction == podend.Reloads {
			reaction = podend.Unsure
		}
		r.add(Step{Do: Signal, Stop: reaction, Text: text})
		return open
	case isOwn && !isGet && where == "/drain_listeners" && !strings.Contains(query, "graceful") &&
		!slices.Contains(admins, port) && !r.isOthers(port): // Envoy closes its listeners at once
		r.add(Step{Do: Signal, Stop: podend.Refuses, Text: text})
		return open
	}
	r.add(Step{Do: Unknown, MayStop: isOwn && (isEnd || strings.Contains(where, "drain")), Text: text})
	return open
}

// isOthers reports whether a port seems to be another container's: of several it is not declared by this one.
func (r *reading) isOthers(port int) bool {
	return port != 0 && len(r.spec.Containers) > 1 && !hasNumber(r.container, strconv.Itoa(port))
}
