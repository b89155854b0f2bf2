package observe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	var killed []string
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
			killed = append(killed, c.Name)
		}
		if !c.IsProxy {
			t.Seconds = max(t.Seconds, after.Seconds())
		}
	}
	t.Traffic.Exit = observe.Exit{Known: len(t.Exits) > 0}
	t.addReport(p)
	t.Conclude(killed)
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

// Pod is the part of a pod that the observer keeps: a few hundred bytes of the 10 to 30 KB that the API server sends.
type Pod struct {
	Key
	Name        string
	UID         types.UID
	Owner       *metav1.OwnerReference // nil for a pod without a controller
	HostNetwork bool
	Grace       time.Duration // terminationGracePeriodSeconds

	// Deleted is when the API server accepted the deletion, in whole seconds; zero before. DeletionGrace is the grace
	// period of the deletion: kubectl delete --grace-period and an eviction can shorten it.
	Deleted       time.Time
	DeletionGrace time.Duration

	// Ended is true when the kubelet ends the pod by itself: eviction under pressure, or IsShutdown: of the node.
	Ended, IsShutdown bool

	IsEvicted bool // the eviction API has deleted it

	Agent pod.Agent // lastcall's, without a token in other pods

	Containers []Container
	Known      observe.Options // of its traffic

	HasPorts bool // an app declares ports, or a readiness probe that connects to one
}

// Container is a container of a pod, native sidecars included.
type Container struct {
	Name      string
	ID        string // without the runtime's prefix; empty before its start
	IsProxy   bool   // carries the traffic of the others
	IsRunning bool
	Restarts  int32
	Exit      *pod.End     // nil while it runs
	Report    *AgentReport // of lastcall's sidecar or hook, when it has ended and left one
}

// podOf copies the fields of a pod that the observer needs.
func podOf(p *corev1.Pod) Pod {
	out := Pod{
		Key:  Key{Namespace: p.Namespace, Workload: pod.WorkloadOf(&p.ObjectMeta), Proxy: pod.CarrierOf(p)},
		Name: strings.Clone(p.Name), UID: p.UID, HostNetwork: p.Spec.HostNetwork, Agent: pod.AgentOf(p),
	}
	out.Agent.Token = strings.Clone(out.Agent.Token)
	if owner := metav1.GetControllerOf(p); owner != nil {
		out.Owner = &metav1.OwnerReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	}
	out.Grace = pod.GraceOf(&p.Spec)
	if p.DeletionTimestamp != nil {
		out.Deleted, out.DeletionGrace = pod.Deletion(p)
	}
	for i := range p.Status.Conditions {
		out.disruption(&p.Status.Conditions[i])
	}
	advice.Know(&out.Known, &p.Spec, out.Proxy)
	out.HasPorts = slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		r := c.ReadinessProbe
		hasProbe := r != nil && (r.HTTPGet != nil || r.TCPSocket != nil || r.GRPC != nil)
		return !pod.IsProxy(&p.Spec, &c) && (len(c.Ports) > 0 || hasProbe)
	})
	for _, s := range pod.Statuses(p) {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		c := Container{Name: s.Name, ID: id, Restarts: s.RestartCount, Exit: pod.EndOf(&s),
			IsRunning: s.State.Running != nil, IsProxy: pod.IsProxy(&p.Spec, pod.Find(&p.Spec, s.Name))}
		if end := s.State.Terminated; end != nil && pod.HasLastcall(out.Proxy) {
			if c.Report = reportOf(end.Message); c.Report != nil {
				c.Report.IsSidecar = pod.IsAgent(p, s.Name)
			}
		}
		out.Containers = append(out.Containers, c)
	}
	return out
}

// appEnd is the last of exits that is not a proxy's or the sandbox's; without one, the last of all.
func (p *Pod) appEnd(exits map[string]time.Duration) (last time.Duration) {
	for _, c := range p.Containers {
		if !c.IsProxy {
			last = max(last, exits[c.ID])
		}
	}
	if last == 0 {
		for _, after := range exits {
			last = max(last, after)
		}
	}
	return last
}

// hasEnded reports whether no container runs or will run.
func (p *Pod) hasEnded() bool {
	return len(p.Containers) > 0 && !slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Exit == nil })
}

// isTerminating reports whether the pod is to end.
func (p *Pod) isTerminating() bool { return !p.Deleted.IsZero() || p.Ended }

// deadline is when the kubelet sends SIGKILL, zero if it is unknown. The kubelet counts from its own receipt of the
// deletion, which is about when the observer receives it; after a late start, the API server's time is closer.
func (p *Pod) deadline(began time.Time) time.Time {
	switch {
	case p.Deleted.IsZero():
		return time.Time{}
	case began.Sub(p.Deleted) > lateAfter:
		return p.Deleted.Add(p.DeletionGrace)
	}
	return began.Add(p.DeletionGrace)
}

// earliest is when SIGTERM may have been sent at the earliest, if the observer learned of the termination at began.
func (p *Pod) earliest(began time.Time) time.Time {
	if p.Deleted.IsZero() || began.Sub(p.Deleted) > lateAfter {
		return began.Add(-2 * newsPatience)
	}
	return p.Deleted
}

// limit is when the observer no longer waits for the end of the pod.
func (p *Pod) limit(began time.Time) time.Time {
	if at := p.deadline(began); at.After(began) {
		return at.Add(endPatience)
	}
	return began.Add(p.Grace + endPatience)
}

// hasStarted reports whether a container has started.
func (p *Pod) hasStarted() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return c.ID != "" })
}

// The sources of a SIGKILL before the end of the pod's grace period: the label from of
// lastcall_observer_deadlines_total, and deadline_from in reports.
const (
	FromDelete   = "delete"        // kubectl delete --grace-period, or another client's deletion with one
	FromEviction = "eviction"      // an eviction with a grace period
	FromShutdown = "node-shutdown" // the kubelet's graceful shutdown of the node
)

// Deadline is when SIGKILL comes; the zero value is unknown.
type Deadline struct {
	At   time.Time
	From string
}

// leastGrace is the least that the kubelet gives a pod (calculateEffectiveGracePeriod in its pod workers);
// drain.LeastGrace is the least that it gives a container after its hook.
const leastGrace = time.Second

// The texts by which the kubelet and the eviction API say why a pod ends, in its condition DisruptionTarget.
const (
	messageShutdown = "Pod was terminated in response to imminent node shutdown." // kubelet, nodeshutdown manager
	reasonEviction  = "EvictionByEvictionAPI"                                     // API server, pod eviction
)

// disruption reads the condition of a pod that ends for another reason than its owner's will.
func (p *Pod) disruption(c *corev1.PodCondition) {
	if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
		return
	}
	p.Ended = p.Ended || c.Reason == corev1.PodReasonTerminationByKubelet
	p.IsShutdown = p.IsShutdown || c.Reason == corev1.PodReasonTerminationByKubelet && c.Message == messageShutdown
	p.IsEvicted = p.IsEvicted || c.Reason == reasonEviction
}

// sooner is the deadline of a pod that ends before its own grace period does. since is when the kubelet received that:
// about when the observer did. shutdown is the kubelet's grace period for a shutdown of the node, 0 if unknown.
func (p *Pod) sooner(since time.Time, shutdown time.Duration) Deadline {
	switch {
	case !p.Deleted.IsZero() && p.DeletionGrace < p.Grace:
		from := FromDelete
		if p.IsEvicted {
			from = FromEviction
		}
		return Deadline{since.Add(max(p.DeletionGrace, leastGrace)), from}
	case p.IsShutdown && shutdown > 0 && shutdown < p.Grace:
		return Deadline{since.Add(max(shutdown, leastGrace)), FromShutdown}
	}
	return Deadline{}
}
