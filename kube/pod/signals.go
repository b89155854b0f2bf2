package pod

import (
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
)

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
	shares := r.spec.ShareProcessNamespace != nil && *r.spec.ShareProcessNamespace
	switch {
	case signal == "0" || signal == "L" || len(targets) == 0:
		return open
	case isOne && (signal == "KILL" || signal == "STOP" || shares): // PID 1 gets neither from its own namespace
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
		if reaction == course.Unsure {
			return r.unknown(text)
		}
	case signal == "KILL":
		reaction = course.Exits
	}
	if reaction == course.Ignores {
		r.add(Step{Do: Runs, Text: text})
		return succeeds
	}
	r.add(Step{Do: Signal, Stop: reaction, Text: text})
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
