package drain

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/printable"
)

// remedyTLS is for connections of which the sidecar sees no request.
const remedyTLS = "; a sidecar that terminates TLS (tls-cert of --inbound) ends such connections between two requests"

// Summary describes a termination in one sentence, such as "drained in 12.3s: 5.0s minimum drain, 7.3s waiting for
// GET /delay/10 from 10.244.0.7; nothing cut". It is empty for a Verdict that is not the end of a termination.
func (r Report) Summary() string {
	outcome := "nothing cut"
	switch r.Verdict {
	case Clean:
		if r.Failed > 0 {
			outcome = "ended by itself"
		}
	case Assumed:
		outcome = "nothing seen in flight, open connections assumed idle"
	case Cut:
		outcome = r.cut()
	case Ended:
		outcome = "ended by terminationDrainDuration, whatever was open"
	case Crashed:
		outcome = "the proxy ended by itself before it was stopped"
		if r.Trigger == ServerEnded.String() {
			outcome = "a server ended by itself before it was stopped"
		}
	case Quit:
		outcome = "ended at once, by /quitquitquit"
	case Exited:
		outcome = "ended at once, since the app had exited by itself"
	case Restarted:
		outcome = "ended at once, since only the app's container restarts"
	default:
		return ""
	}
	text := "drained in " + seconds(r.Duration)
	var phases []string
	for _, span := range r.Phases {
		if phase := r.phase(span); phase != "" {
			phases = append(phases, phase)
		}
	}
	if len(phases) > 0 {
		text += ": " + strings.Join(phases, ", ")
	}
	if r.Finish != nil {
		text += "; " + r.Finish.sentence()
	}
	text += "; " + outcome
	isTLS := func(c Conversation) bool { return c.Protocol == "tls" }
	if r.Verdict == Cut && slices.ContainsFunc(slices.Concat(r.Open, r.HeldBy), isTLS) {
		text += remedyTLS
	}
	if r.DeadlineFrom != "" {
		text += fmt.Sprintf("; SIGKILL was due after %s (%s)", seconds(r.Deadline), r.DeadlineFrom)
	}
	text += counted(r.Late, "connection or request arrived after the drain began",
		"connections and requests arrived after the drain began")
	text += counted(r.Raced, "request arrived as its idle connection was being closed",
		"requests arrived as their idle connections were being closed")
	text += counted(r.Failed, "request got no response, since the app had gone",
		"requests got no response, since the app had gone")
	if len(r.Faults) > 0 {
		text += "; " + r.Faults[0]
		if more := len(r.Faults) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more faults)", more)
		}
	}
	return printable.Text(text)
}

// counted is a part of the summary about n things; empty for none.
func counted(n uint64, one, many string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 " + one
	}
	return fmt.Sprintf("; %d %s", n, many)
}

// phase describes a phase that took long enough to explain the duration.
func (r Report) phase(span Span) string {
	if time.Duration(span.Took) < 50*time.Millisecond {
		return ""
	}
	took := seconds(span.Took)
	switch span.Phase {
	case Draining:
		return took + " minimum drain"
	case Waiting:
		if len(r.HeldBy) == 0 {
			return took + " waiting"
		}
		return took + " waiting for " + listed(r.HeldBy, 2, 0)
	case Finishing:
		return took + " for the app to end its opaque connections"
	case LastCall:
		return took + " last call"
	case Drained:
		return took + " waiting for SIGTERM after the hook"
	}
	return ""
}

func (r Report) cut() string {
	switch f := r.Finish; {
	case len(r.Open)+r.LeftOut > 0:
		return "cut " + listed(r.Open, 3, r.LeftOut)
	case f != nil && f.Dropped > 0:
		return fmt.Sprintf("the app cut %d", f.Dropped)
	}
	return "the cut requests are unknown"
}

// listed names the first conversations and counts the others.
func listed(all []Conversation, most, leftOut int) string {
	var names []string
	for _, c := range all[:min(most, len(all))] {
		names = append(names, c.sentence())
	}
	text := strings.Join(names, " and ")
	if more := len(all) - len(names) + leftOut; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return strings.TrimPrefix(text, " and ")
}

func (c Conversation) sentence() string {
	what := cmp.Or(c.Request, "a "+c.Protocol+" connection")
	peer := c.Peer
	if host, _, err := net.SplitHostPort(c.Peer); err == nil {
		peer = host // the port of a client has no meaning
	}
	text := what
	if peer != "" {
		text += " from " + peer
	}
	if c.Ending != "" {
		text += " (" + c.Ending + ")"
	}
	return text
}

func seconds(m Millis) string { return fmt.Sprintf("%.1fs", time.Duration(m).Seconds()) }
