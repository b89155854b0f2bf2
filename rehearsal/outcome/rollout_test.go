package outcome

import (
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

var zero = time.Now()

func at(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }

func lost(why traffic.Failure, began, last float64, address string) load.Sent {
	return load.Sent{Reason: why, Outcome: traffic.Outcome{Began: at(began), Last: at(last), Address: address}}
}

// In which phase a pod of this machine loses a request, and that there is advice for it.
func TestPhase(t *testing.T) {
	exits := Ending{Address: "old", Deleted: zero, Term: at(1), Gone: at(1.005)}
	killed := Ending{Address: "old", Deleted: zero, Term: at(1), Killed: at(5), Gone: at(5.002)}
	for _, tt := range []struct {
		name string
		end  Ending
		lost load.Sent
		want Phase
	}{
		{"cut by the exit", exits, lost(traffic.Ended, 0.5, 1.004, "old"), Terminating},
		{"refused after the end", exits, lost(traffic.Refused, 2, 2.001, "old"), Gone},
		{"refused while the app drains", killed, lost(traffic.Refused, 2, 2.001, "old"), Terminating},
		{"cut by SIGKILL", killed, lost(traffic.Truncated, 2, 5.001, "old"), Killed},
		{"503 in the hook", exits, lost("503", 0.1, 0.2, "old"), InHook},
		{"before", exits, lost(traffic.Ended, -0.5, -0.1, "old"), Serving},
		{"of the new pod", exits, lost("500", 1.5, 1.6, "new"), Elsewhere},
		{"through the gateway", exits, lost("503", 0.5, 1.006, "gateway"), Terminating},
		{"long after, through the gateway", exits, lost("503", 9, 9.1, "gateway"), Between},
	} {
		r := &Rollout{Began: zero, Old: []Ending{tt.end}, Gateway: "gateway", Propagation: 4 * time.Second}
		e, phase, _ := r.blame(tt.lost)
		if phase != tt.want {
			t.Errorf("%s: got %q", tt.name, phase)
		}
		if r.advice(e, phase, tt.lost.Reason, time.Second, false) == "" {
			t.Errorf("%s: no advice", tt.name)
		}
	}
}

// Through a gateway a loss is attributed to the pods that were ending, and its phase is that of the closest moment.
func TestBlame(t *testing.T) {
	const never = -1
	ending := func(name string, hook, deleted, gone float64) Ending {
		e := Ending{Name: name, Deleted: at(deleted), Gone: at(gone)}
		if hook != never {
			e.Term = at(deleted + hook)
		}
		return e
	}
	for _, tt := range []struct {
		name        string
		hook        float64
		why         traffic.Failure
		began, last float64
		phase       Phase
		pods        string
	}{
		{"before", 0, traffic.Ended, -2, -1, Serving, ""},
		{"no pod ends", 0, traffic.Ended, 0, 0.5, Between, ""},
		{"in the hook", 3, traffic.Ended, 0, 2, InHook, "first"},
		{"after the hook", 3, traffic.Ended, 0, 5, Terminating, "first"},
		{"at SIGTERM, before another's deletion", 7, traffic.Ended, 0, 8.01, Terminating, "first"},
		{"two pods", 0, traffic.Ended, 7, 8.1, Terminating, "second first"},
		{"no SIGTERM", never, traffic.Ended, 0, 5, InHook, "first"},
		{"refused after the end", 0, traffic.Refused, 10.2, 12.2, Gone, "first second"},
		{"SIGKILL", 0, traffic.Ended, 30, 40.1, Killed, "killed"},
		{"long after", 0, traffic.Refused, 50, 50, Between, ""},
	} {
		killed := ending("killed", tt.hook, 20, 40)
		killed.Killed = killed.Gone
		r := &Rollout{Began: zero, Gateway: "gateway", Old: []Ending{ending("first", tt.hook, 1, 10), ending("second", tt.hook, 8.1, 14), killed}}
		e, phase, pods := r.blame(lost(tt.why, tt.began, tt.last, "gateway"))
		if phase != tt.phase || strings.Join(pods, " ") != tt.pods {
			t.Errorf("%s: got %s, pods %q", tt.name, phase, pods)
		}
		if r.advice(e, phase, tt.why, time.Second, false) == "" {
			t.Errorf("%s: no advice", tt.name)
		}
	}
}

// The advice names what holds one request more.
func TestAdvice(t *testing.T) {
	r := &Rollout{Propagation: 4 * time.Second}
	for _, tt := range []struct {
		name       string
		hook, kill float64
		took       time.Duration
		want       string
	}{
		{"time was left", 2, 16, time.Second, adviceLingers},
		{"with a longer grace, the same", 2, 19, time.Second, adviceLingers},
		{"the hook has used it", 28, 30, 3 * time.Second, "at least 32"},
		{"the request is too long", 0, 10, 12 * time.Second, "at least 17"},
	} {
		e := &Ending{Deleted: zero, HookEnded: at(tt.hook), Term: at(tt.hook), Killed: at(tt.kill)}
		if got := r.advice(e, Killed, traffic.Ended, tt.took, true); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	// A loss before SIGTERM is the hook's, and one at a SIGTERM behind a sleep a long request's, only if its client had
	// not kept the connection.
	for _, tt := range []struct {
		when   Phase
		isKept bool
		want   string
	}{
		{InHook, true, adviceKept}, {InHook, false, "the preStop hook stops the app too early"},
		{Terminating, true, "kept connections still carry"}, {Terminating, false, adviceFinish},
	} {
		e := &Ending{Deleted: zero, Term: at(5)}
		if got := r.advice(e, tt.when, traffic.Ended, 8*time.Second, tt.isKept); !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// A response that took less than a millisecond has an end.
func TestKinds(t *testing.T) {
	l := &load.Load{Requests: make([]load.Request, 2), References: []load.Reference{{Took: time.Microsecond}, {}}}
	if all := Kinds(l); all[0].TookMS != 1 || all[1].TookMS != 0 {
		t.Errorf("%+v", all)
	}
}

// The lives of several pods are one round: first signals, last end, and how often each way to end.
func TestRound(t *testing.T) {
	r := &Rollout{Began: zero, Old: []Ending{
		{Name: "a", Deleted: at(1), Term: at(2), Gone: at(3), EndedBy: "exit 0"},
		{Name: "b", Deleted: at(4), Term: at(5), Gone: at(7), EndedBy: "exit 0"},
		{Name: "c", Deleted: at(5), Killed: at(35), Gone: at(36), EndedBy: "SIGKILL"},
	}}
	run := r.round()
	if run.TermMS != 2000 || run.KillMS != 35000 || run.GoneMS != 36000 || run.HookEndMS != -1 || run.EndedBy != "SIGKILL; 2 × exit 0" || len(run.Pods) != 3 || run.Pods[2].TermMS != -1 {
		t.Errorf("%+v", run)
	}
}
