package pod

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// wrapped reads a command that runs another one, if it is one.
func (r *reading) wrapped(program string, args []string, text string) (is bool, out result) {
	first := 0 // its own operands
	switch program {
	case "exec", "nohup", "setsid", "nice", "ionice", "stdbuf", "time", "command", "tini", "dumb-init", "busybox",
		"eval", "builtin", "xargs":
	case "timeout", "gosu", "su-exec", "chroot", "setpriv":
		first = 1
	case "env", "sudo", "runuser", "su":
		if i := slices.Index(args, "-c"); i >= 0 && i+1 < len(args) {
			return true, r.inside(func(child *reading) result { return child.script(args[i+1], "") })
		}
	default:
		return false, open
	}
	i := 0
	for i < len(args) && (strings.HasPrefix(args[i], "-") || program == "env" && strings.Contains(args[i], "=")) {
		if _, takesValue := valued[program+args[i]]; takesValue {
			i++
		}
		i++
	}
	limit := ""
	if first == 1 && i < len(args) {
		limit = args[i]
	}
	if i += first; i >= len(args) {
		return true, succeeds
	}
	command := args[i:]
	switch program {
	case "timeout":
		return true, r.limited(limit, command, text)
	case "eval":
		return true, r.script(strings.Join(command, " "), "")
	case "xargs": // adds words that it reads
		return true, r.call(append(slices.Clone(command), dynamic))
	case "exec":
		out = r.call(command)
		r.exits = true
		return true, out
	}
	return true, r.call(command)
}

// valued are options, behind their program, that a value follows.
var valued = map[string]bool{
	"timeout-s": true, "timeout--signal": true, "timeout-k": true, "nice-n": true, "xargs-n": true, "xargs-I": true,
	"sudo-u": true, "env-u": true,
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
		for _, s := range child.steps {
			r.add(s)
		}
		return out
	case child.traps && !strings.Contains(text, "KILL") && !strings.Contains(text, "-9"):
		r.add(Step{Do: Unknown, For: min(h.Duration, d), MayStop: h.Stops || h.MayStop, Text: text})
		return open
	case h.IsKnown && !h.Stops:
		r.add(Step{Do: Sleep, For: d})
		return fails
	}
	r.add(Step{Do: Unknown, For: min(h.Duration, d), Most: max(time.Nanosecond, d), MayStop: h.Stops || h.MayStop,
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
		"=": x == y, "==": x == y, "!=": x != y, "-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b,
		"-ge": a >= b,
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
