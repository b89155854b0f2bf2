package observe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Termination is the observer's report of one, as JSON on one line and as an Event.
type Termination struct {
	advice.Termination

	DeadlineFrom string       `json:"deadline_from,omitempty"` // the source of an earlier deadline; empty: none
	Agent        *AgentReport `json:"agent,omitempty"`         // what lastcall's agent reported; nil: nothing

	UID   types.UID `json:"uid"`
	Node  string    `json:"node"`
	Exits []AppExit `json:"exits,omitempty"` // of the containers, proxies included

	owner  *metav1.OwnerReference // the controller; nil: none
	isGone bool                   // the API server no longer has the pod

	event string // the name of the controller's Event, which has lastcall's report; empty: there is none
}

// AppExit is the end of a container.
type AppExit struct {
	Container string  `json:"container"`
	Code      *int32  `json:"code,omitempty"` // nil: the API server has not reported it in time
	Seconds   float64 `json:"seconds"`        // after the beginning
}

// exitWithin is how long before the deadline an exit still counts as that of SIGKILL, when the API server has not
// reported the exit code: the kubelet received the deletion at about the same time as the observer.
const exitWithin = 200 * time.Millisecond

// conclude fills in what follows from the rest: which containers SIGKILL ended, and the verdict.
func (t *Termination) conclude(p *Pod, exits map[string]time.Duration) {
	for _, c := range p.Containers {
		after, isSeen := exits[c.ID]
		if c.ID == "" || !isSeen { // it had ended before
			continue
		}
		e := AppExit{Container: c.Name, Seconds: after.Seconds()}
		isKilled := !t.Deadline.IsZero() && t.Began.Add(after).After(t.Deadline.Add(-exitWithin))
		if c.Exit != nil {
			e.Code = &c.Exit.Code
			isKilled = c.Exit.IsKilled
		}
		t.Exits = append(t.Exits, e)
		if isKilled {
			t.Killed = append(t.Killed, c.Name)
		}
		if !c.IsProxy {
			t.Seconds = max(t.Seconds, after.Seconds())
		}
	}
	t.Traffic.Exit = observe.Exit{Known: len(t.Exits) > 0}
	t.Lateness = time.Duration(t.Traffic.Arrivals.Last).Seconds()
	t.addReport(p)
	t.Judge()
}

// maxCut bounds the requests that one report can claim: a container writes its termination message itself.
const maxCut = 100_000

// AgentReport is the report that lastcall's sidecar or hook wrote into a termination message, which outlives it in the
// pod's status.
type AgentReport struct {
	IsSidecar    bool          `json:"-"` // otherwise the hook's, behind which the app still had to end
	Verdict      drain.Verdict `json:"verdict"`
	Seconds      float64       `json:"seconds"`                 // of the drain
	Cut          int           `json:"cut,omitempty"`           // conversations that the last call ended in the middle
	Opaque       int           `json:"opaque,omitempty"`        // that it or the app ended, perhaps within a request
	Left         int           `json:"left,omitempty"`          // that a hook left to the app
	Raced        uint64        `json:"raced,omitempty"`         // requests that crossed the close of an idle connection
	DeadlineFrom string        `json:"deadline_from,omitempty"` // the source of an earlier SIGKILL; empty: none
}

// reportOf reads a termination message; nil if it is not a report of the end of a drain.
func reportOf(message string) *AgentReport {
	r, ok := drain.ParseMessage(message)
	if !ok || r.Verdict == drain.Resumed || r.Verdict == drain.Restarted {
		return nil
	}
	a := &AgentReport{Verdict: r.Verdict, Seconds: time.Duration(r.Duration).Seconds(),
		Raced: r.Raced, DeadlineFrom: r.DeadlineFrom}
	if a.Verdict == drain.Cut {
		a.Cut = max(r.LeftOut, 0)
		for _, one := range r.Open {
			switch {
			case one.Ending == drain.LeftToApp:
				a.Left++
			case slices.Contains([]string{"tcp", "tls", "unknown"}, one.Protocol):
				if time.Duration(one.Quiet) < quietTime {
					a.Opaque++
				}
			case !strings.HasPrefix(one.Ending, "close "): // of a WebSocket: it had a close frame
				a.Cut++
			}
		}
		if r.Finish != nil { // HTTP/2's client sends last without a request, too
			a.Opaque += int(min(r.Finish.Dropped, maxCut))
		} else if len(r.Open) == 0 {
			a.Cut = max(a.Cut, 1) // after a failed last call the number is unknown
		}
		a.Cut = min(a.Cut, maxCut)
	}
	return a
}

// knows reports whether the report has all that was lost.
func (a *AgentReport) knows() bool { return a.Verdict == drain.Clean || a.Verdict == drain.Cut }

// quietTime is how long the connection of a protocol that lastcall does not read is silent behind the app's last bytes
// until no request is in flight.
const quietTime = 5 * time.Second

// addReport makes lastcall's report the truth for the traffic of lastcall: it knows each request. Behind a hook the app
// still has to end, so that certain losses after that count, too. Without a report nothing is lost for certain: the
// kernel shows lastcall's own answers, refused probes and Envoy's connections to an app that has ended as losses, too.
func (t *Termination) addReport(p *Pod) {
	defer func() {
		if seen := &t.Traffic; t.Agent == nil && pod.HasLastcall(p.Proxy) {
			seen.Unclear.Unreported = seen.Lost.Total() + seen.Unclear.Unfinished
			seen.Lost, seen.Unclear.Unfinished = observe.Lost{}, 0 // SIGKILL would make those certain
		}
	}()
	for _, c := range p.Containers {
		r := c.Report
		if r == nil {
			continue
		}
		t.Agent, t.event = r, pod.EventName(p.UID, p.Name, c.Name, c.Restarts)
		seen := &t.Traffic
		doubtful := seen.Unclear.Opaque + seen.Lost.Total()
		switch {
		case r.IsSidecar && r.knows():
			seen.Lost = observe.Lost{Cut: r.Cut}
			seen.Unseen, seen.Overruns, seen.Blind = 0, 0, 0
			t.Unknown = nil
		default:
			seen.Lost.Cut = max(0, r.Cut-seen.Lost.Total())
		}
		switch {
		case !r.knows() || r.Left > 0: // only the kernel shows how the app ended the connections that were left to it
		case r.Opaque > 0: // the kernel's count has several requests of one connection
			seen.Unclear = observe.Unclear{Opaque: max(r.Opaque, doubtful-r.Cut)}
		default:
			seen.Unclear = observe.Unclear{}
		}
		seen.Unclear.Raced = int(min(r.Raced, maxCut))
	}
}

// Summary is one sentence for people.
func (t *Termination) Summary() string {
	if slices.Contains(t.Unknown, UnknownHostNetwork) {
		return "not observed: the pod uses the node's network, in which the sockets of other programs are"
	}
	var b strings.Builder
	if t.Restart {
		fmt.Fprintf(&b, "container %s ended without its pod: ", t.Container)
	}
	fmt.Fprintf(&b, "%s requests lost", t.Bounds())
	if why := t.Traffic.Lost.Why(); why != "" {
		fmt.Fprintf(&b, " (%s)", why)
	}
	fmt.Fprintf(&b, "; the app exited after %.1fs", t.Seconds)
	if t.Lateness > 0 {
		fmt.Fprintf(&b, "; new connections until %.2fs after the beginning", t.Lateness)
	}
	if doubts := t.Doubts(); doubts != "" {
		b.WriteString("; " + doubts)
	}
	return b.String()
}
