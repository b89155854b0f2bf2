package events

import (
	"fmt"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
)

// The reasons, as kubectl get events shows them.
const (
	ReasonDrained = "Drained"      // everybody was done
	ReasonCut     = "DrainCut"     // the last call had to end conversations
	ReasonFixed   = "DrainFixed"   // ended by terminationDrainDuration, whatever was open
	ReasonCrashed = "DrainCrashed" // the proxy ended by itself before it was told to
	ReasonQuit    = "DrainSkipped" // /quitquitquit: no drain
	ReasonExited  = "AppExited"    // the app ended by itself: no drain
)

// maxMessage is what the API server takes of an Event's message, bytes.
const maxMessage = 1024

// describe says what a report comes to, in one line. ok is false for what is no termination.
func describe(r drain.Report) (kind, reason, message string, ok bool) {
	kind = corev1.EventTypeNormal
	outcome := "nothing cut"
	switch r.Verdict {
	case drain.Clean:
		reason = ReasonDrained
	case drain.Assumed:
		reason, outcome = ReasonDrained, "nothing seen in flight, open connections assumed idle"
	case drain.Cut:
		kind, reason, outcome = corev1.EventTypeWarning, ReasonCut, cut(r)
	case drain.Ended:
		reason, outcome = ReasonFixed, "ended by terminationDrainDuration, whatever was open"
	case drain.Crashed:
		kind, reason, outcome = corev1.EventTypeWarning, ReasonCrashed, "the proxy ended before it was told to"
	case drain.Quit:
		reason, outcome = ReasonQuit, "ended at once, by /quitquitquit"
	case drain.Exited:
		reason, outcome = ReasonExited, "ended at once, since the app had exited by itself"
	default:
		return "", "", "", false
	}
	message = "drained in " + seconds(r.Duration)
	var phases []string
	for _, span := range r.Phases {
		if text := phase(r, span); text != "" {
			phases = append(phases, text)
		}
	}
	if len(phases) > 0 {
		message += ": " + strings.Join(phases, ", ")
	}
	message += "; " + outcome
	if r.Late > 0 {
		message += fmt.Sprintf("; %d came after the drain began", r.Late)
	}
	if r.Raced > 0 {
		message += fmt.Sprintf("; %d asked while being closed as idle", r.Raced)
	}
	if len(r.Faults) > 0 {
		message += "; " + r.Faults[0]
		if more := len(r.Faults) - 1; more > 0 {
			message += fmt.Sprintf(" (and %d more faults)", more)
		}
	}
	return kind, reason, short(message), true
}

// phase tells of one that took long enough to matter: what a reader asks is where the time went.
func phase(r drain.Report, span drain.Span) string {
	if time.Duration(span.Took) < 50*time.Millisecond {
		return ""
	}
	took := seconds(span.Took)
	switch span.Phase {
	case drain.Draining:
		return took + " minimum drain"
	case drain.Waiting:
		if len(r.HeldBy) == 0 {
			return took + " waiting"
		}
		return took + " waiting for " + listed(r.HeldBy, 2, 0)
	case drain.LastCall:
		return took + " last call"
	case drain.Drained:
		return took + " for the app's end"
	}
	return ""
}

func cut(r drain.Report) string {
	if len(r.Open)+r.LeftOut == 0 {
		return "what was cut is not known"
	}
	return "cut " + listed(r.Open, 3, r.LeftOut)
}

// listed names the first of some conversations, and counts the others.
func listed(all []drain.Conversation, most, leftOut int) string {
	var names []string
	for _, c := range all[:min(most, len(all))] {
		names = append(names, conversation(c))
	}
	text := strings.Join(names, " and ")
	if more := len(all) - len(names) + leftOut; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return strings.TrimPrefix(text, " and ")
}

func conversation(c drain.Conversation) string {
	what := c.Request
	if what == "" {
		what = "a " + c.Protocol + " connection"
	}
	peer := c.Peer
	if host, _, err := net.SplitHostPort(c.Peer); err == nil {
		peer = host // its port tells nobody anything
	}
	text := fmt.Sprintf("%s from %s", what, peer)
	if c.Ending != "" {
		text += " (" + c.Ending + ")"
	}
	return text
}

func seconds(m drain.Millis) string { return fmt.Sprintf("%.1fs", time.Duration(m).Seconds()) }

// short keeps a message to one line that the API server takes. Requests are a client's words.
func short(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
