package observe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
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
