package carrier

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sleepIn matches sleep as a command of a shell script: at its beginning or after one of ; & | ( or a newline, followed
// by its operands.
var sleepIn = regexp.MustCompile(`(?:^|[;&|({\n]|\bdo\b|\bthen\b)\s*(?:exec\s+)?(?:/\S*/)?sleep\s+(` +
	operand + `(?:\s+` + operand + `)*)`)

const operand = `[0-9][0-9.]*[smhd]?`

// Sleeps is the time that a hook sleeps at least: the sum of its sleeps. In a loop, which may sleep more often, isLoop
// is true.
func Sleeps(h *corev1.LifecycleHandler) (d time.Duration, isLoop bool) {
	switch {
	case h == nil:
		return 0, false
	case h.Sleep != nil:
		return Seconds(h.Sleep.Seconds), false
	case h.Exec == nil || len(h.Exec.Command) == 0:
		return 0, false
	}
	command := withoutApplet(h.Exec.Command)
	if path.Base(command[0]) == "sleep" {
		return operands(command[1:]), false
	}
	line, ok := ShellLine(command)
	if !ok {
		return 0, false
	}
	for _, match := range sleepIn.FindAllStringSubmatch(line, -1) {
		d += operands(strings.Fields(match[1]))
	}
	return d, IsLoop(line)
}

// nothingElse matches a script of sleeps and of commands without an effect, separated by ; && or newlines.
var nothingElse = func() *regexp.Regexp {
	const sleep = `(?:exec\s+)?(?:/\S*/)?sleep(?:\s+` + operand + `)+`
	const idle = `true|:|exit(?:\s+0)?|echo(?:\s+(?:'[^']*'|"[^"$` + "`" + `]*"|[\w.,:=-]+))*`
	const separator = `\s*(?:;|&&|\n)\s*`
	const command = `(?:` + sleep + `|` + idle + `)(?:\s*\|\|\s*(?:true|:))?`
	return regexp.MustCompile(`^\s*` + command + `(?:` + separator + command + `)*\s*;?\s*$`)
}()

// OnlySleep is the time of a hook that does nothing but sleep: Kubernetes' own sleep, or a command in one of the usual
// spellings.
func OnlySleep(h *corev1.LifecycleHandler) (time.Duration, bool) {
	d, isLoop := Sleeps(h)
	if isLoop || h == nil || h.Sleep == nil && d == 0 {
		return 0, false
	}
	if h.Sleep != nil {
		return d, true
	}
	command := withoutApplet(h.Exec.Command)
	if path.Base(command[0]) == "sleep" {
		return d, nothingElse.MatchString("sleep " + strings.Join(command[1:], " "))
	}
	line, _ := ShellLine(command)
	return d, nothingElse.MatchString(line)
}

var loop = regexp.MustCompile(`(?:^|[;&|({\s])(?:while|until)\s`)

// IsLoop reports whether a shell script has a loop.
func IsLoop(line string) bool { return loop.MatchString(line) }

// shells are the programs whose -c takes a script.
var shells = map[string]bool{"sh": true, "bash": true, "ash": true, "dash": true}

// ShellLine is the script of a shell's command line; false if it is none.
func ShellLine(command []string) (string, bool) {
	if command = withoutApplet(command); len(command) == 0 || !shells[path.Base(command[0])] {
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

// withoutApplet is the command that a busybox binary runs by its first argument, as in busybox sleep 5.
func withoutApplet(command []string) []string {
	if len(command) > 1 && path.Base(command[0]) == "busybox" {
		return command[1:]
	}
	return command
}

// operands adds up the operands of coreutils' sleep: numbers with s, m, h or d.
func operands(args []string) time.Duration {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	var sum time.Duration
	for _, arg := range args {
		unit := time.Second
		if n := len(arg); n > 0 && units[arg[n-1]] != 0 {
			unit, arg = units[arg[n-1]], arg[:n-1]
		}
		n, err := strconv.ParseFloat(arg, 64)
		if err != nil || n < 0 || n > 1e6 {
			return sum
		}
		sum += time.Duration(n * float64(unit))
	}
	return sum
}
