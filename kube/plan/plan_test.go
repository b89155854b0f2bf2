package plan_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/plan"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// web is a pod with a preStop sleep.
func web(sleep int64) *corev1.Pod {
	c := corev1.Container{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}
	if sleep > 0 {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: sleep}}}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
}

var options = plan.Options{Request: 10 * time.Second, Propagation: 2 * time.Second}

// TestPromises: what a pod promises its clients, bare and with lastcall.
func TestPromises(t *testing.T) {
	injected := web(0)
	injected.Labels = map[string]string{"lastcall.dev/inject": "true"}
	for _, tt := range []struct {
		pod                     *corev1.Pod
		lastcall                bool
		longest, accepts, empty time.Duration
	}{
		{web(0), false, 0, 0, 0},
		{injected, true, 28 * time.Second, 5 * time.Second, 5 * time.Second},
	} {
		exits := options
		exits.App = podend.Exits
		p := plan.New("Pod web", tt.pod, exits)
		if p.HasLastcall != tt.lastcall || p.Longest != tt.longest || p.Idle.Accepts != tt.accepts || p.Idle.Gone != tt.empty || p.Lost() > 0 == tt.lastcall {
			t.Errorf("lastcall %v: %v, %v, %v; want %+v", p.HasLastcall, p.Longest, p.Idle.Accepts, p.Idle.Gone, tt)
		}
	}
}

const text = `Pod web
Grace period 30 s (default); a request of 10 s is in flight

                  0s        5s        10s       15s       20s       25s
in flight         ██████████×·········
new connections   ██████████
web               ░░░░░░░░░░T
█ served  × lost  ? unknown  ░ before its stop signal  ▓ after it  T it  | gone  K SIGKILL

     0 s  the pod is deleted: web's preStop begins
          new connections accepted, in flight served
     5 s  the pod is gone; the request is cut: web exits

A request of 10 s that
  is in flight at the deletion  cut at 5 s: web exits
  arrives at the deletion       cut at 5 s: web exits
  arrives 1 s later             cut at 5 s: web exits
  arrives 2 s later             cut at 5 s: web exits

- requests in flight at the deletion are served if they end within 5 s
- new connections are served for 5 s, longer than clients connect (2 s)
- an idle pod is gone after 5 s
`

func TestText(t *testing.T) {
	var out bytes.Buffer
	exits := options
	exits.App = podend.Exits
	if err := plan.New("Pod web", web(5), exits).WriteText(&out, console.Style{}); err != nil {
		t.Fatal(err)
	}
	if out.String() != text {
		t.Errorf("got\n%s\nwant\n%s", out.String(), text)
	}
}

// TestPictures: a name cannot break out of the picture.
func TestPictures(t *testing.T) {
	var plans []*plan.Plan
	for sleep := range int64(3) {
		plans = append(plans, plan.New("Pod <script>alert(1)</script>", web(sleep), options))
	}
	var svg, js bytes.Buffer
	if err := plan.WriteSVG(&svg, plans); err != nil || !strings.HasPrefix(svg.String(), "<svg ") {
		t.Errorf("SVG: %v", err)
	}
	if strings.Contains(svg.String(), "<script>") {
		t.Error("a name is not escaped")
	}
	var decoded []struct {
		Requests []struct {
			Served bool `json:"served"`
		} `json:"requests"`
	}
	if err := plan.WriteJSON(&js, plans); err != nil || json.Unmarshal(js.Bytes(), &decoded) != nil || len(decoded) != len(plans) || len(decoded[0].Requests) != 4 {
		t.Errorf("JSON: %v %s", err, js.String())
	}
}

// TestAbsurd: numbers that the API server admits, or a file has, and names that control a terminal.
func TestAbsurd(t *testing.T) {
	for _, n := range []int64{-5, 86400, math.MaxInt64} {
		pod := web(1)
		pod.Spec.TerminationGracePeriodSeconds = &n
		pod.Spec.Containers[0].Name = "w\x1b[2Jeb"
		pod.Spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds = n
		p := plan.New("Pod web\n::error::", pod, options)
		var text, svg bytes.Buffer
		if err := p.WriteText(&text, console.Style{}); err != nil || strings.ContainsAny(text.String(), "\x1b") || strings.Contains(text.String(), "\n::error") || strings.Contains(text.String(), "e+") {
			t.Errorf("%d: %v\n%q", n, err, text.String())
		}
		if err := plan.WriteSVG(&svg, []*plan.Plan{p}); err != nil || svg.Len() > 20_000 || strings.ContainsAny(svg.String(), "\x1b") {
			t.Errorf("%d: %v, a picture of %d bytes", n, err, svg.Len())
		}
	}
}
