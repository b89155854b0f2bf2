package observe

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Verdict is the result of a termination in a word.
type Verdict string

// The verdicts.
const (
	VerdictClean   Verdict = "clean"   // no request was lost
	VerdictLost    Verdict = "lost"    // at least one request was lost
	VerdictUnclear Verdict = "unclear" // none was lost for certain, and at most Most
	VerdictUnknown Verdict = "unknown" // not all was seen, so that there is no upper bound
)

// Reason is how a request was lost, from the client's view.
type Reason string

// The reasons.
const (
	Reset      Reason = "reset"      // the connection was reset, or the answer truncated
	Unanswered Reason = "unanswered" // the connection was closed in order, without an answer
	Refused    Reason = "refused"    // no listener: a new connection was refused
	Cut        Reason = "cut"        // lastcall's last call ended it, as its agent reports
)

// Termination is the effect of one termination of an app on its clients, as seen by the kernel. Its JSON is the line
// that lastcall observe --json prints. All numbers are connections, unless they state another unit.
type Termination struct {
	Begin    time.Time    `json:"begin"`
	BeginBy  string       `json:"begin_by,omitempty"` // the event of Begin: "SIGTERM", "listener closed", …
	Duration drain.Millis `json:"duration_ms"`        // from Begin to the end of the app
	Ports    []uint16     `json:"ports"`              // the listening ports that were watched

	// Open are the clients' connections at Begin; Busy of them had a request in flight.
	Open int `json:"open"`
	Busy int `json:"busy"`

	Lost     Lost     `json:"lost"`
	Arrivals Arrivals `json:"arrivals"`

	// Answered had a request since Begin, or in flight at Begin, and ended with an answer; Left ended without one
	// because the client closed first.
	Answered int `json:"answered"`
	Left     int `json:"left"`
	// Unclear are ends that may have lost a request, in addition to Lost.
	Unclear Unclear `json:"unclear,omitzero"`
	// Unseen ended while the kernel's reports overran, or were later than the end of the observation, Overruns times:
	// their end is unknown.
	Unseen   int `json:"unseen"`
	Overruns int `json:"overruns"`
	// Blind is for how long the kernel's table could not be read, or the life of a watch that was too short to see a
	// listener.
	Blind drain.Millis `json:"blind_ms,omitempty"`
	// ForeignResets are the resets of refused connections in a namespace that the app shares with others: they may have
	// been meant for any of its processes, and are in no sum.
	ForeignResets int `json:"foreign_resets,omitempty"`

	// Idle is the time from the last request in flight, or the last arrival, to the end: the app waited for nothing.
	Idle drain.Millis `json:"idle_ms"`

	// Exit is the caller's information about the end of the process.
	Exit Exit `json:"exit"`

	// Samples are the first lost requests, at most maxSamples.
	Samples []Sample `json:"samples,omitempty"`
	Verdict Verdict  `json:"verdict"`
}

// Lost counts lost requests by reason.
type Lost struct {
	Reset      int `json:"reset"`
	Unanswered int `json:"unanswered"`
	Refused    int `json:"refused"` // attempts to connect: one client may make several

	// Cut is how many more lastcall's agent has ended at its last call than the kernel shows as lost.
	Cut int `json:"cut,omitempty"`
}

// Total is the sum.
func (l Lost) Total() int { return l.Reset + l.Unanswered + l.Refused + l.Cut }

// Add adds the losses of another termination.
func (l *Lost) Add(other Lost) {
	l.Reset += other.Reset
	l.Unanswered += other.Unanswered
	l.Refused += other.Refused
	l.Cut += other.Cut
}

// Reasons are the numbers by reason, 0 included.
func (l Lost) Reasons() map[Reason]int {
	return map[Reason]int{Reset: l.Reset, Unanswered: l.Unanswered, Refused: l.Refused, Cut: l.Cut}
}

// Why lists the reasons that occurred: "3 reset, 1 refused"; empty without any.
func (l Lost) Why() string {
	return strings.Join(counts{
		{l.Reset, string(Reset)}, {l.Unanswered, string(Unanswered)}, {l.Refused, string(Refused)}, {l.Cut, string(Cut)},
	}.texts(), ", ")
}

// Unclear counts requests that may have been lost, by the reason of the doubt: one for each connection, but of Opaque.
type Unclear struct {
	// Probes were refused or reset, and may be the kubelet's.
	Probes int `json:"probes,omitempty"`
	// Opaque were on connections with HTTP/2, TLS, WebSockets or another protocol, in use when the app closed them: as
	// many for each as the client's segments with data since the beginning, because each may have been a request.
	Opaque int `json:"opaque,omitempty"`
	// Streams were receiving an answer in parts when the app closed them.
	Streams int `json:"streams,omitempty"`
	// Crossed ended because the client sent something after the app's close: a request, or TLS's close_notify.
	Crossed int `json:"crossed,omitempty"`
	// SameTick ended with both sides' last bytes in one tick of the kernel's clock.
	SameTick int `json:"same_tick,omitempty"`
	// Unfinished had a request in flight at the end of the observation.
	Unfinished int `json:"unfinished,omitempty"`
	// Raced were closed by lastcall's agent as idle while a request was on its way, which most clients repeat.
	Raced int `json:"raced,omitempty"`
	// Unreported were lost as far as the kernel shows, in a pod whose end lastcall has not reported: it may have answered
	// them, or they were probes.
	Unreported int `json:"unreported,omitempty"`
}

// counts are numbers with their units.
type counts []struct {
	n    int
	text string
}

// texts are those that are not 0.
func (all counts) texts() (out []string) {
	for _, c := range all {
		if c.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", c.n, c.text))
		}
	}
	return out
}

func (m Unclear) counts() counts {
	return counts{
		{m.Probes, "refused or reset, perhaps the kubelet's probes"},
		{m.Opaque, "on connections in use, of a protocol other than plain HTTP/1.1"},
		{m.Streams, "in the middle of a streamed answer, or at its end"},
		{m.Crossed, "sent something after the close: a request, or TLS's last message"},
		{m.SameTick, "whose last request and answer fell into one tick of the clock"},
		{m.Unfinished, "still busy at the end of the observation"},
		{m.Raced, "sent a request while their idle connection was being closed"},
		{m.Unreported, "lost by the kernel's counters alone: lastcall's report was not read"},
	}
}

// Total is the sum.
func (m Unclear) Total() (n int) {
	for _, c := range m.counts() {
		n += c.n
	}
	return n
}

// Doubts are those that occurred, such as "1 refused or reset, perhaps the kubelet's probes".
func (m Unclear) Doubts() []string { return m.counts().texts() }

// Why lists the doubts; empty without any.
func (m Unclear) Why() string { return strings.Join(m.Doubts(), ", ") }

// Arrivals are the clients' new connections after Begin, refused ones included.
type Arrivals struct {
	Count int `json:"count"`
	// Last is how late the last one came, after Begin.
	Last drain.Millis `json:"last_ms"`
}

// add counts an arrival.
func (a *Arrivals) add(late time.Duration) {
	a.Count++
	a.Last = max(a.Last, drain.Millis(late))
}

// Exit is how the process ended.
type Exit struct {
	Known  bool `json:"known"`
	Killed bool `json:"killed"` // by SIGKILL
	Code   int  `json:"code"`   // as a shell reports it: 128 and the signal's number for one that a signal ended
}

// Sample is a lost request.
type Sample struct {
	Peer   netip.AddrPort `json:"peer"` // the client; without an address when the kernel has forgotten it
	Port   uint16         `json:"port"` // of the app
	Reason Reason         `json:"reason"`
	At     drain.Millis   `json:"at_ms"`  // when the connection ended, after Begin
	Age    drain.Millis   `json:"age_ms"` // of the request's last byte, then
}

// maxSamples bounds Samples.
const maxSamples = 10

// Most is how many requests were lost at most. There is no such number if not all was seen.
func (t *Termination) Most() (n int, known bool) {
	return t.Lost.Total() + t.Unclear.Total() + t.Unseen, t.Overruns == 0 && t.Blind == 0
}

// Judge sets Verdict from the counts. A caller that adds its own knowledge calls it again.
func (t *Termination) Judge() {
	switch most, known := t.Most(); {
	case t.Lost.Total() > 0:
		t.Verdict = VerdictLost
	case !known:
		t.Verdict = VerdictUnknown
	case most > 0:
		t.Verdict = VerdictUnclear
	default:
		t.Verdict = VerdictClean
	}
}
