package losses

import (
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name    string
		from    Termination
		verdict string
		why     string
	}{
		{name: "nothing lost", verdict: Clean},
		{name: "lost", from: Termination{Traffic: observe.Termination{Lost: observe.Lost{Reset: 2, Refused: 1}}}, verdict: Lost, why: "2 reset, 1 refused"},
		{name: "SIGKILL without a request in flight", from: Termination{Killed: []string{"app"}}, verdict: Killed},
		{name: "SIGKILL ends the requests in flight", from: Termination{Killed: []string{"app"}, Traffic: observe.Termination{Unfinished: 3}}, verdict: Lost, why: "3 reset"},
		{name: "in flight when the observer ended", from: Termination{Traffic: observe.Termination{Unfinished: 3}}, verdict: Unknown},
		{name: "seen late", from: Termination{Unknown: []string{"late"}}, verdict: Unknown},
		{name: "a loss that was seen is certain", from: Termination{Unknown: []string{"late"}, Traffic: observe.Termination{Lost: observe.Lost{Unanswered: 1}}}, verdict: Lost, why: "1 unanswered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one := tt.from
			one.Judge()
			one.Judge() // a second time changes nothing
			if why := Why(one.Traffic.Lost); one.Verdict != tt.verdict || why != tt.why {
				t.Errorf("%s (%s), want %s (%s)", one.Verdict, why, tt.verdict, tt.why)
			}
		})
	}
}

func TestRead(t *testing.T) {
	const log = `{"level":"INFO","msg":"observing the terminations of a node"}
[pod/lastcall-observer-x/observer] {"namespace":"shop","pod":"web-1","workload":"deployment/web","proxy":"none","verdict":"lost","seconds":1.5,"traffic":{"lost":{"reset":1}}}
no JSON
{"namespace":"shop","pod":"web-2",
{"namespace":"shop","pod":"web-2","workload":"deployment/web","proxy":"lastcall","verdict":"clean","seconds":2,"traffic":{}}
{"workload":"deployment/web","verdict":"lost","seconds":-1}
{"workload":"deployment/web","verdict":"lost","lateness_seconds":1e308}
{"workload":"deployment/web","verdict":"lost","traffic":{"lost":{"refused":-1}}}
`
	var totals Totals
	skipped, err := Read(strings.NewReader(log), totals.Add)
	if err != nil || skipped != 4 {
		t.Fatalf("%d lines skipped, %v; want 4", skipped, err)
	}
	all := totals.Workloads()
	if len(all) != 2 || all[0].Proxy != "none" || all[0].Total() != 1 || all[1].Terminations != 1 {
		t.Fatalf("%+v", all)
	}
	if _, err := Read(strings.NewReader(strings.Repeat("x", maxLine+1)), totals.Add); err == nil {
		t.Error("a line without an end: no error")
	}
}

func TestAdvise(t *testing.T) {
	bare := Workload{Namespace: "shop", Name: "deployment/web", Proxy: "none", Terminations: 4}
	ours := bare
	ours.Proxy = carrier.Ours
	for _, tt := range []struct {
		name string
		from Workload
		set  func(w *Workload)
		want []string // a part of each advice, the most important first
	}{
		{"nothing lost", bare, func(*Workload) {}, nil},
		{"lost without a proxy", bare, func(w *Workload) { w.Reset = 3 }, []string{`lastcall.dev/inject: "true"`}},
		{"refused later than the default drain", bare, func(w *Workload) { w.Refused, w.Lateness = 3, 7.2 }, []string{`"MINIMUM_DRAIN_DURATION": "9s"`}},
		{"refused behind lastcall", ours, func(w *Workload) { w.Refused, w.Lateness = 1, 6 }, []string{`"MINIMUM_DRAIN_DURATION": "7s"`}},
		{"SIGKILL", bare, func(w *Workload) { w.Killed, w.Longest = 1, 30 }, []string{"terminationGracePeriodSeconds: 35"}},
		{"a fixed sleep", bare, func(w *Workload) { w.Seconds, w.Idle = 80, 76 }, []string{"fixed sleep"}},
		{"not seen", bare, func(w *Workload) { w.Unknown = 2 }, []string{"do not call it clean"}},
		{"a pod without a controller has no template", bare, func(w *Workload) { w.Name, w.Reset = "pod/web", 1 }, []string{"let lastcall hold"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := tt.from
			tt.set(&w)
			all := Advise(&w)
			if len(all) != len(tt.want) {
				t.Fatalf("%+v, want %q", all, tt.want)
			}
			for i, want := range tt.want {
				if text := all[i].What + all[i].Why + all[i].Patch; !strings.Contains(text, want) {
					t.Errorf("%s: want %q", text, want)
				}
			}
		})
	}
}

func TestDiscount(t *testing.T) {
	one := Termination{}
	one.Traffic.Lost.Refused = 3
	one.Traffic.Arrivals.Last = drain.Millis(1500 * time.Millisecond)
	one.Discount(Probes{time.Second})
	if one.Judge(); one.Probes != 2 || one.Traffic.Lost.Refused != 1 || one.Verdict != Lost || len(one.Unknown) > 0 {
		t.Errorf("%+v", one)
	}
	one = Termination{}
	one.Traffic.Lost.Refused = 1
	one.Discount(Probes{10 * time.Second})
	if one.Judge(); one.Verdict != Unknown || one.Unknown[0] != UnknownProbes {
		t.Errorf("a refused connection that may be a probe: %+v", one)
	}
}

// TestLateness: the kubelet's probes are no clients.
func TestLateness(t *testing.T) {
	for _, tt := range []struct {
		name string
		a    observe.Arrivals
		want drain.Millis
	}{
		{"none", observe.Arrivals{}, 0},
		{"probes", observe.Arrivals{Last: millis(3400), Local: []drain.Millis{millis(500), millis(1490), millis(2480), millis(3400)}}, 0},
		{"a client from another address", observe.Arrivals{Last: millis(3400), Remote: millis(1203), Local: []drain.Millis{millis(1490), millis(2480), millis(3400)}}, millis(1203)},
		{"clients behind a NodePort", observe.Arrivals{Last: millis(900), Local: []drain.Millis{millis(700), millis(750), millis(800), millis(850), millis(900)}}, millis(800)},
		{"refused since the last look", observe.Arrivals{Last: millis(900), Local: []drain.Millis{millis(850), millis(850), millis(850), millis(850)}}, millis(850)},
	} {
		if got := (Probes{time.Second}).Lateness(&tt.a); got != time.Duration(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, time.Duration(tt.want))
		}
	}
}

func millis(n int) drain.Millis { return drain.Millis(time.Duration(n) * time.Millisecond) }
