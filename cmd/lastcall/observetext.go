package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// terminationText is a termination for a person: a sentence for each fact, in lines of at most 80 columns where names
// allow it.
func terminationText(t observe.Termination) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s: %s", headline(t), exitText(t))
	if t.BeginBy != "" {
		line("  began        %s, by %s", t.Begin.Local().Format("15:04:05.000"), t.BeginBy)
	}
	line("  open then    %s, %d busy, %d idle", terminal.Count(t.Open, "connection"), t.Busy, t.Open-t.Busy)
	line("  lost         %s: %d reset, %d unanswered, %d refused",
		terminal.Count(t.Lost.Total(), "request"), t.Lost.Reset, t.Lost.Unanswered, t.Lost.Refused)
	for _, s := range t.Samples {
		peer := "a client"
		if s.Peer.IsValid() {
			peer = s.Peer.String()
		}
		line("               %s at port %d: %s after %s, %s old",
			peer, s.Port, s.Reason, measured(s.At), measured(s.Age))
	}
	if more := t.Lost.Reset + t.Lost.Unanswered - len(t.Samples); more > 0 {
		line("               and %d more", more)
	}
	line("  answered     %d; %d closed early by the client", t.Answered, t.Left)
	if t.Arrivals.Count > 0 {
		line("  arrivals     %d, the last %s after the beginning", t.Arrivals.Count, measured(t.Arrivals.Last))
	} else {
		line("  arrivals     none")
	}
	line("  idle         for the last %s", measured(t.Idle))
	if len(t.Ports) == 0 {
		line("  unknown      no listening port was found")
	}
	for _, doubt := range doubts(t) {
		line("  unclear      %s", doubt)
	}
	return b.String()
}

func headline(t observe.Termination) string {
	switch t.Verdict {
	case observe.VerdictLost:
		return terminal.Count(t.Lost.Total(), "request") + " lost"
	case observe.VerdictClean:
		return "no request lost"
	case observe.VerdictUnclear:
		most, _ := t.Most()
		return fmt.Sprintf("0 to %d requests lost", most)
	}
	return "no loss seen, but not all was seen"
}

func exitText(t observe.Termination) string {
	text := "ended after " + measured(t.Duration)
	switch {
	case t.Exit.Killed:
		text += " by SIGKILL"
	case t.Exit.Known:
		text += fmt.Sprintf(" with exit code %d", t.Exit.Code)
	}
	return text
}

// doubts are the gaps of the result.
func doubts(t observe.Termination) []string {
	out := t.Unclear.Doubts()
	if t.Unseen > 0 {
		out = append(out, fmt.Sprintf("%d whose end the kernel could not report", t.Unseen))
	}
	if t.ForeignResets > 0 {
		out = append(out, fmt.Sprintf("%d refused on this machine, by any of its processes", t.ForeignResets))
	}
	if t.Overruns > 0 {
		out = append(out, terminal.Count(t.Overruns, "overrun")+" of the kernel's reports")
	}
	if t.Blind > 0 {
		out = append(out, measured(t.Blind)+" without a view of the kernel's table")
	}
	if t.Answered > 0 {
		out = append(out, "whether answers were whole: half of one looks the same")
	}
	return out
}

func measured(d drain.Millis) string { return terminal.Measured(time.Duration(d)) }
