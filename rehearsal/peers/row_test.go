package peers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	peer "github.com/lastcall-dev/lastcall/internal/peers"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// cutAfter is the time of a request that the pod's end cuts: a busy machine has sent SIGTERM by then.
const cutAfter = 5 * time.Second

// The shortest scenes with real Envoys: one that leaves with its app, one that does not wait,
// and one that an idle connection holds beyond the limit.
func TestRealEnvoy(t *testing.T) {
	th := env(t)
	for _, tt := range []struct {
		peer  string
		scene Scene
		delay time.Duration
		check func(r *row) bool
	}{
		{"istio-native", Request, time.Second, func(r *row) bool { return r.answer.good() && r.stayed() < 2*time.Second && r.lateLost > 0 }},
		{"istio-native-exit", KeepAlive, cutAfter, func(r *row) bool { return !r.answer.good() && r.stayed() < time.Second }},
		{"contour", Idle, 0, func(r *row) bool { return r.stayed() < 2*time.Second }},
		{"contour", KeepAlive, time.Second, func(r *row) bool { return r.answer.good() && r.unfinished && !r.killed() }},
	} {
		t.Run(tt.peer+" "+string(tt.scene), func(t *testing.T) {
			t.Parallel()
			r := &row{peer: chosen(t, tt.peer), scene: tt.scene, delay: tt.delay}
			if err := r.start(t.Context(), th, t.TempDir()); err != nil {
				t.Fatal(err)
			}
			if err := r.run(t.Context(), 3*time.Second); err != nil {
				t.Fatal(err)
			}
			got := r.result(3 * time.Second)
			if !tt.check(r) || !got.OK {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The models of Istio's agent end their pods as Istio's own agent does.
func TestModelIsAsTheOriginal(t *testing.T) {
	th := env(t)
	agent := peer.Need(t, "pilot-agent")
	programs, err := strategy.FindPrograms(t.Context(), "", th.Programs.Self, []strategy.Strategy{{Sidecar: strategy.Lastcall}})
	if err != nil {
		t.Fatal(err)
	}
	th.Programs.Lastcall, th.Programs.PilotAgent = programs.Lastcall, agent
	for _, tt := range []struct {
		peer  string
		scene Scene
		delay time.Duration
	}{
		{"istio-default", Request, 8 * time.Second}, // cut after 5 s
		{"istio-default", Idle, 0},
		{"istio-exit-on-zero", Request, 7500 * time.Millisecond},
		{"istio-exit-on-zero", Idle, 0},
		{"istio-native", Idle, 0}, // with a request, its last response and the exit of the app race
		{"istio-native-exit", KeepAlive, cutAfter},
	} {
		t.Run(tt.peer+" "+string(tt.scene), func(t *testing.T) {
			t.Parallel()
			var got [2]Row
			for i, p := range []Peer{chosen(t, tt.peer), chosen(t, tt.peer).by(agent)} {
				meter := lag.Start()
				defer meter.End()
				r := &row{peer: p, scene: tt.scene, delay: tt.delay}
				if err := r.start(t.Context(), th, t.TempDir()); err != nil {
					t.Fatal(err)
				}
				if err := r.run(t.Context(), 20*time.Second); err != nil {
					t.Fatal(err)
				}
				r.allowance = meter.Allowance(r.began, time.Now())
				if got[i] = r.result(20 * time.Second); !got[i].OK {
					t.Errorf("%s: %+v", p.Source, got[i])
				}
			}
			model, original := got[0], got[1]
			// When app and Envoy end within a millisecond, the client of a lost request gets a 503 or nothing.
			most := milliseconds(slack) + model.AllowanceMS + original.AllowanceMS
			if !strings.HasPrefix(original.Source, "pilot-agent") || (model.Status == 200) != (original.Status == 200) || model.Killed != original.Killed ||
				max(model.GoneMS-original.GoneMS, original.GoneMS-model.GoneMS) > most {
				t.Errorf("model: %d, gone after %.0f ms, killed: %v; original: %d, gone after %.0f ms, killed: %v",
					model.Status, model.GoneMS, model.Killed, original.Status, original.GoneMS, original.Killed)
			}
			t.Logf("model: %d, gone after %.0f ms; original: %d, gone after %.0f ms", model.Status, model.GoneMS, original.Status, original.GoneMS)
		})
	}
}

func TestExpect(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		peer  string
		scene Scene
		left  time.Duration
		want  string
	}{
		{"istio-default", Request, 10 * s, "the request is lost; pod gone after 5.00 s to 10.00 s"},
		{"istio-default", Request, 3 * s, "the request is answered; pod gone after 5.00 s"},
		{"istio-exit-on-zero", Request, 10 * s, "the request is answered; pod gone after 10.00 s to 11.00 s"},
		{"istio-exit-on-zero", Idle, 0, "the request is answered; pod gone after 6.00 s"},
		{"istio-exit-on-zero", KeepAlive, 10 * s, "the request is answered; pod gone after 30.00 s"},
		{"istio-native", Request, 10 * s, "the request is answered; pod gone after 10.00 s"},
		{"istio-native-exit", Request, 10 * s, "the request is lost; pod gone after 0.00 s"},
		{"envoy-gateway", Request, 3 * s, "the request is answered; pod gone after 10.00 s to 12.00 s"},
		{"envoy-gateway", Request, 14 * s, "the request is answered; pod gone after 14.00 s to 16.00 s"},
		{"envoy-gateway", Request, 80 * s, "the request is lost; pod gone after 60.00 s to 62.00 s"},
		{"envoy-gateway", KeepAlive, 10 * s, "the request is answered; pod gone after 60.00 s to 62.00 s"},
		{"contour", Request, 10 * s, "the request is answered; pod gone after 10.00 s to 16.00 s"},
		{"contour", Idle, 0, "the request is answered; pod gone after 0.00 s to 1.00 s"},
		{"contour", KeepAlive, 10 * s, "the request is answered; pod gone after 300.00 s"},
		{"consul-dataplane", Idle, 0, "the request is answered; pod gone after 30.00 s"},
		{"consul-dataplane", Request, 40 * s, "the request is lost; pod gone after 30.00 s"},
		{"kuma-gateway", Request, 10 * s, "the request is answered; pod gone after 30.00 s"},
		{"lastcall-sidecar", Request, 10 * s, "the request is answered; pod gone after 10.00 s, at most 100ms after the last byte"},
		{"lastcall-manager", Idle, 0, "the request is answered; pod gone after 5.00 s, at most 100ms after the last byte"},
		{"lastcall-manager", KeepAlive, 10 * s, "the request is answered; pod gone after 10.00 s, at most 450ms after the last byte"},
		{"lastcall-manager", Request, 40 * s, "the request is lost; pod gone after 28.00 s to 30.00 s"},
	} {
		p := chosen(t, tt.peer)
		got := p.expect(circumstances{scene: tt.scene, left: tt.left, grace: p.grace, app: p.app}).String()
		if got != tt.want {
			t.Errorf("%s, %s, %v:\ngot  %s\nwant %s", tt.peer, tt.scene, tt.left, got, tt.want)
		}
	}
}

// measured is a row: the request answered after 10 s, the pod gone at the given time.
func measured(t *testing.T, name string, scene Scene, gone time.Duration) *row {
	t.Helper()
	began := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	return &row{
		peer: chosen(t, name), scene: scene, delay: 10 * time.Second, began: began,
		answer:  answer{asked: began, last: began.Add(10 * time.Second), status: 200},
		endings: []node.Ending{{Gone: began.Add(gone)}, {Gone: began.Add(gone / 2)}},
	}
}

func TestJudge(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, tt := range []struct {
		name   string
		row    *row
		change func(*row)
		wrong  string // what does not hold
	}{
		{name: "as it should be", row: measured(t, "lastcall-sidecar", Request, 10*s+15*ms)},
		{name: "late", row: measured(t, "lastcall-sidecar", Request, 10*s+200*ms), wrong: "it stayed after"},
		{name: "with an idle connection", row: measured(t, "lastcall-sidecar", KeepAlive, 10*s+200*ms)},
		{name: "lost", row: measured(t, "contour", Request, 12*s), change: func(r *row) { r.answer.status, r.answer.err = 0, errors.New("EOF") }, wrong: "the request"},
		{name: "not lost", row: measured(t, "istio-default", Request, 5*s), wrong: "the request"},
		{name: "late ones lost", row: measured(t, "contour", Request, 12*s), change: func(r *row) { r.lateLost = 1 }, wrong: "requests in the next second"},
		{name: "too early", row: measured(t, "consul-dataplane", Idle, 12*s), wrong: "the pod was gone"},
		{name: "there at the limit", row: measured(t, "contour", KeepAlive, 75*s), change: func(r *row) { r.unfinished = true }},
		{name: "not there at the limit", row: measured(t, "contour", KeepAlive, 60*s), wrong: "the pod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(tt.row)
			}
			got := tt.row.result(75 * time.Second)
			var wrong []string
			for _, c := range got.Checks {
				if !c.OK {
					wrong = append(wrong, c.What)
				}
			}
			if text := strings.Join(wrong, "; "); !strings.HasPrefix(text, tt.wrong) || (tt.wrong == "") != got.OK {
				t.Errorf("wrong: %q, want %q", text, tt.wrong)
			}
		})
	}
}

func TestTable(t *testing.T) {
	cut := measured(t, "istio-default", Request, 5*time.Second)
	cut.answer.status, cut.answer.err, cut.answer.last, cut.lateLost = 0, errors.New("EOF"), cut.began.Add(5*time.Second), 10
	held := measured(t, "contour", KeepAlive, 75*time.Second)
	held.unfinished = true
	rows := []*row{cut, measured(t, "lastcall-sidecar", Idle, 5*time.Second), held}
	res := result(rows, Options{Delay: DefaultDelay, Limit: DefaultLimit}, 80*time.Second)
	var out strings.Builder
	if err := res.WriteTable(&out, console.Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"✓ istio-default           none after  5.00 s         5.00 s         0 ms    11 of 11  itself\n",
		"✓ lastcall-sidecar                                   5.00 s                           itself\n",
		"✓ contour                 200 after 10.00 s       > 75.00 s      65.00 s      0 of 1  still there\n",
		"✓ 3 of 3 as their rules predict, in 80.00 s.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line\n%s in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(line)); n > console.Width+1 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Each wrong value is named with what is accepted, before anything is started.
func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Peers = []string{"istio"} }, `unknown peer "istio": must be one of istio-default, `},
		{func(o *Options) { o.Delay = 0 }, "--delay is 0s: must be 1s to 5m0s"},
		{func(o *Options) { o.Limit = 10 * time.Second }, "--limit is 10s: must be 16s, which the request needs, to 15m0s"},
		{func(o *Options) { o.EnvoyPath = "/no/such" }, "--envoy-path: must be an Envoy program"},
	} {
		o := Options{Delay: DefaultDelay, Limit: DefaultLimit}
		tt.change(&o)
		_, err := Run(t.Context(), o)
		var option strategy.OptionError
		if !errors.As(err, &option) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want …%s…", err, tt.want)
		}
	}
	if got, err := choose([]string{"contour", "istio-default"}); err != nil || fmt.Sprint(got[0].Name, got[1].Name) != "istio-defaultcontour" {
		t.Errorf("got %v, %v", got, err)
	}
}
