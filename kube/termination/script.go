package termination

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// sleepIn matches sleep as a command of a shell script: at its beginning or after one of ; & | ( or a newline, followed
// by its operands.
var sleepIn = regexp.MustCompile(`(?:^|[;&|({\n]|\bdo\b|\bthen\b)\s*(?:/\S*/)?sleep\s+([0-9][0-9.]*[smhd]?(?:\s+[0-9][0-9.]*[smhd]?)*)`)

// Sleeps is the time that a hook sleeps at least: the sum of its sleeps. In a loop, which may sleep more often, isLoop is
// true.
func Sleeps(h *corev1.LifecycleHandler) (d time.Duration, isLoop bool) {
	switch {
	case h == nil:
		return 0, false
	case h.Sleep != nil:
		return carrier.Seconds(h.Sleep.Seconds), false
	case h.Exec == nil || len(h.Exec.Command) == 0:
		return 0, false
	}
	command := h.Exec.Command
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

var loop = regexp.MustCompile(`(?:^|[;&|({\s])(?:while|until)\s`)

// IsLoop reports whether a shell script has a loop.
func IsLoop(line string) bool { return loop.MatchString(line) }

// shells are the programs whose -c takes a script.
var shells = map[string]bool{"sh": true, "bash": true, "ash": true, "dash": true}

// ShellLine is the script of a shell's command line; false if it is none.
func ShellLine(command []string) (string, bool) {
	if !shells[path.Base(command[0])] {
		return "", false
	}
	for i, arg := range command[1:] {
		if strings.HasPrefix(arg, "-") && strings.HasSuffix(arg, "c") && i+2 < len(command) {
			return command[i+2], true
		}
	}
	return "", false
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
