package losses

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name    string
		from    Termination
		verdict string
		why     string
		bounds  string
	}{
		{name: "nothing lost", verdict: Clean, bounds: "0"},
		{name: "lost, and perhaps more", from: Termination{Traffic: observe.Termination{Lost: observe.Lost{Reset: 2}, Maybe: observe.Maybe{Probes: 1, Opaque: 2}}}, verdict: Lost, why: "2 reset", bounds: "2 to 5"},
		{name: "lost", from: Termination{Traffic: observe.Termination{Lost: observe.Lost{Reset: 2, Refused: 1}}}, verdict: Lost, why: "2 reset, 1 refused"},
		{name: "SIGKILL without a request in flight", from: Termination{Killed: []string{"app"}}, verdict: Killed},
		{name: "SIGKILL ends the requests in flight", from: Termination{Killed: []string{"app"}, Traffic: observe.Termination{Maybe: observe.Maybe{Unfinished: 3}}}, verdict: Lost, why: "3 reset"},
		{name: "in flight when the observer ended", from: Termination{Traffic: observe.Termination{Maybe: observe.Maybe{Unfinished: 3}}}, verdict: Unclear, bounds: "0 to 3"},
		{name: "seen late", from: Termination{Unknown: []string{"late"}}, verdict: Unknown, bounds: "0 or more"},
		{name: "a loss that was seen is certain", from: Termination{Unknown: []string{"late"}, Traffic: observe.Termination{Lost: observe.Lost{Unanswered: 1}}}, verdict: Lost, why: "1 unanswered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one := tt.from
			one.Judge()
			one.Judge() // a second time changes nothing
			if why := Why(one.Traffic.Lost); one.Verdict != tt.verdict || why != tt.why || tt.bounds != "" && one.Bounds() != tt.bounds {
				t.Errorf("%s (%s, %s), want %s (%s, %s)", one.Verdict, why, one.Bounds(), tt.verdict, tt.why, tt.bounds)
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
		{"SIGKILL", bare, func(w *Workload) { w.Killed, w.Longest = 1, 30 }, []string{"terminationGracePeriodSeconds: 36"}},
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

// TestKnow: what a pod's spec shows of its traffic.
func TestKnow(t *testing.T) {
	http := func(port intstr.IntOrString, scheme corev1.URIScheme) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 5, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port, Scheme: scheme}}}
	}
	spec := &corev1.PodSpec{Containers: []corev1.Container{{
		Ports:          []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "grpc-api", ContainerPort: 9090}, {Name: "metrics", ContainerPort: 9102}},
		ReadinessProbe: http(intstr.FromString("web"), corev1.URISchemeHTTPS),
		LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}},
	}, {
		ReadinessProbe: http(intstr.FromInt32(8081), ""),
	}}}
	var got observe.Options
	Know(&got, spec, carrier.None)
	want := map[uint16]observe.Protocol{443: observe.TLS, 8443: observe.TLS, 8080: observe.TLS, 9090: observe.Opaque, 8081: observe.HTTP1}
	if !maps.Equal(got.Protocols, want) || !slices.Equal(got.Probes, []observe.Probe{{Port: 8080, Period: 5 * time.Second}, {Port: 8081, Period: 5 * time.Second}}) {
		t.Errorf("%+v", got)
	}
}
