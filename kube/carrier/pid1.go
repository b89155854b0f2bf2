package carrier

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// runners are package managers that start the app below a shell of their own: npm's sh -c receives the signal and does
// not pass it on.
var runners = []string{"npm", "npx", "yarn", "pnpm"}

// keepsShell matches what makes a shell react to a signal, or replaces it by a program: the manifest does not show that
// the app receives no SIGTERM then.
var keepsShell = regexp.MustCompile(`(?:^|[;&|({\s])(?:trap|exec)\s`)

// separators are those between the commands of a script.
var separators = regexp.MustCompile(`;|&&|\|\||\n`)

// idle matches a script that serves no one: what ends it does not matter.
var idle = regexp.MustCompile(`sleep\s+(?:infinity|[0-9]{4,}|inf)|tail\s+-[fF]`)

// ShellAsPID1 describes a process that becomes PID 1 of its container and does not pass SIGTERM on to the app, as far
// as the manifest shows; empty if there is none. As PID 1 a process without a handler ignores the signal. dash and
// busybox (the sh of Debian, Ubuntu and Alpine) run the commands of -c as children; bash, which is also the sh of Red
// Hat's images, becomes its last command.
func ShellAsPID1(spec *corev1.PodSpec, c *corev1.Container) string {
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace {
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
	commands := separators.Split(strings.TrimRight(line, "; \n"), -1)
	last := strings.TrimSpace(commands[len(commands)-1])
	if program == "bash" && !strings.ContainsAny(last, "|&(){}") && !IsLoop(line) {
		return childless(strings.Fields(last))
	}
	return program + " -c"
}
