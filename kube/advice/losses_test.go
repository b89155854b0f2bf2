package advice

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/pod"
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
		{name: "lost, and perhaps more", from: Termination{Traffic: observe.Termination{Lost: observe.Lost{Reset: 2}, Unclear: observe.Unclear{Probes: 1, Opaque: 2}}}, verdict: Lost, why: "2 reset", bounds: "2 to 5"},
		{name: "lost", from: Termination{Traffic: observe.Termination{Lost: observe.Lost{Reset: 2, Refused: 1}}}, verdict: Lost, why: "2 reset, 1 refused"},
		{name: "SIGKILL without a request in flight", from: Termination{Killed: []string{"app"}}, verdict: Killed},
		{name: "SIGKILL ends the requests in flight", from: Termination{Killed: []string{"app"}, Traffic: observe.Termination{Unclear: observe.Unclear{Unfinished: 3}}}, verdict: Lost, why: "3 reset"},
		{name: "in flight when the observer ended", from: Termination{Traffic: observe.Termination{Unclear: observe.Unclear{Unfinished: 3}}}, verdict: Unclear, bounds: "0 to 3"},
		{name: "seen late", from: Termination{Unknown: []string{"late"}}, verdict: Unknown, bounds: "0 or more"},
		{name: "a loss that was seen is certain", from: Termination{Unknown: []string{"late"}, Traffic: observe.Termination{Lost: observe.Lost{Unanswered: 1}}}, verdict: Lost, why: "1 unanswered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one := tt.from
			one.Judge()
			one.Judge() // a second time changes nothing
			if why := one.Traffic.Lost.Why(); one.Verdict != tt.verdict || why != tt.why || tt.bounds != "" && one.Bounds() != tt.bounds {
				t.Errorf("%s (%s, %s), want %s (%s, %s)", one.Verdict, why, one.Bounds(), tt.verdict, tt.why, tt.bounds)
			}
		})
	}
}

// TestTotals: what Text and the exit code of observe say of a workload whose proxy changes.
func TestTotals(t *testing.T) {
	var totals Totals
	ended := func(proxy string, lost, most int, seconds float64) {
		one := Termination{Namespace: "shop", Workload: "deployment/web", Proxy: proxy, Seconds: seconds, Lateness: seconds / 2}
		one.Traffic.Lost.Reset, one.Traffic.Unclear.Opaque = lost, most-lost
		one.Judge()
		totals.Add(one)
	}
	ended(pod.CarrierLastcall, 0, 0, 2)
	ended(pod.CarrierNone, 1, 3, 1.5)
	ended(pod.CarrierNone, 1, 1, 4)
	var got []string
	for _, w := range totals.Workloads() {
		got = append(got, w.Text())
	}
	want := []string{
		"deployment/web in shop, proxy none. Terminations: 2. Requests lost: 2 to 4 (2 reset). New connections arrived up to 2.0 s after SIGTERM.",
		"deployment/web in shop, proxy lastcall. Terminations: 1. Requests lost: 0. New connections arrived up to 1.0 s after SIGTERM.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAdvise(t *testing.T) {
	bare := Workload{Namespace: "shop", Name: "deployment/web", Proxy: "none", Terminations: 4}
	ours := bare
	ours.Proxy = pod.CarrierLastcall
	for _, tt := range []struct {
		name string
		from Workload
		set  func(w *Workload)
		want []string // a part of each advice, the most important first
	}{
		{"nothing lost", bare, func(*Workload) {}, nil},
		{"lost without a proxy", bare, func(w *Workload) { w.Reset = 3 }, []string{`lastcall.dev/inject: "true"`}},
		{"refused later than the default drain", bare, func(w *Workload) { w.Refused, w.Lateness = 3, 7.2 }, []string{"lastcall.dev/minimum-drain: 9s"}},
		{"refused behind lastcall", ours, func(w *Workload) { w.Refused, w.Lateness = 1, 6 }, []string{"lastcall.dev/minimum-drain: 7s"}},
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
	Know(&got, spec, pod.CarrierNone)
	want := map[uint16]observe.Protocol{443: observe.Opaque, 8443: observe.Opaque, 8080: observe.Opaque, 9090: observe.Opaque, 8081: observe.HTTP1}
	if !maps.Equal(got.Protocols, want) || !slices.Equal(got.Probes, []observe.Probe{{Port: 8080, Period: 5 * time.Second}, {Port: 8081, Period: 5 * time.Second}}) {
		t.Errorf("%+v", got)
	}
}
