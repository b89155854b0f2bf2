package rehearsal

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// good is a row of lastcall as it should be: a request of 10 s asked a moment
// before the scale-down, the pod gone 8 ms after its last byte.
func good(t *testing.T, name string) *row {
	t.Helper()
	began := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	last := began.Add(9900 * time.Millisecond)
	return &row{
		strategy: named(t, name),
		answer:   traffic.Outcome{Began: began.Add(-100 * time.Millisecond), Last: last, Status: 200},
		end: strategy.End{
			Began:   began,
			App:     node.Ending{Terminated: last.Add(3 * time.Millisecond), Gone: last.Add(6 * time.Millisecond)},
			Sidecar: node.Ending{Terminated: began, Gone: last.Add(8 * time.Millisecond)},
			AppExit: "SIGTERM", SidecarExit: "exit 0",
		},
		report: &drain.Report{Verdict: "clean"},
		idle:   &idleClients{closed: 1, conns: make([]net.Conn, 1)},
	}
}

func judged(t *testing.T, r *row) Row {
	t.Helper()
	p := &experiment{options: Options{Delay: DefaultDelay, Grace: strategy.DefaultGrace}}
	return p.judge(r, "/delay/10")
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*row)
		wrong  []string // what does not hold
	}{
		{"as it should be", func(*row) {}, nil},
		{"another status", func(r *row) { r.answer.Status = 503 }, []string{"the client got"}},
		{"broken off", func(r *row) { r.answer.Detail = io.ErrUnexpectedEOF.Error() }, []string{"the client got"}},
		{"no response", func(r *row) { r.answer.Status, r.answer.Detail = 0, io.EOF.Error() }, []string{"the client got"}},
		{"pod gone 60 ms after the last byte", func(r *row) {
			r.end.Sidecar.Gone = r.answer.Last.Add(60 * time.Millisecond)
		}, []string{"the pod stayed after the last byte and the minimum drain"}},
		{"pod gone seconds after", func(r *row) {
			r.end.App.Gone = r.answer.Last.Add(3 * time.Second)
		}, []string{"the pod was gone", "the pod stayed after the last byte and the minimum drain"}},
		{"SIGKILL", func(r *row) { r.end.App.Killed = r.answer.Last }, []string{"the pod's end"}},
		{"app gets SIGTERM before the last byte", func(r *row) {
			r.end.App.Terminated = r.answer.Last.Add(-time.Second)
		}, []string{"the app's SIGTERM"}},
		{"preStop failed", func(r *row) { r.end.App.HookError = errors.New("exit 1") }, []string{"the app's preStop"}},
		{"sidecar crashed", func(r *row) { r.end.SidecarExit = "exit 1" }, []string{"the sidecar's end"}},
		{"no report", func(r *row) { r.report = nil }, []string{"the sidecar's report"}},
		{"a report that blames", func(r *row) {
			r.report = &drain.Report{Verdict: "cut", Open: []drain.Conversation{{Request: "GET /delay/10"}}}
		}, []string{"the report's verdict", "the report names as cut"}},
		{"idle connection reset", func(r *row) {
			r.idle.closed, r.idle.broken = 0, []error{errors.New("connection reset by peer")}
		}, []string{"idle connections"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := good(t, "lastcall-classic-exit")
			tt.change(r)
			row := judged(t, r)
			var wrong []string
			for _, c := range row.Checks {
				if !c.OK {
					wrong = append(wrong, c.What)
				}
			}
			if got, want := strings.Join(wrong, "; "), strings.Join(tt.wrong, "; "); got != want || row.OK != (want == "") {
				t.Errorf("wrong: %q, want %q", got, want)
			}
		})
	}
}

// Istio's default: the words of the local reply and of the log line count.
func TestJudgeLocalReply(t *testing.T) {
	lost := func() *row {
		r := good(t, "istio-default")
		r.answer.Status, r.answer.Tail = 503, []byte(terminationBody)
		r.answer.Last = r.end.Began.Add(5 * time.Second)
		r.end.Sidecar.Gone = r.answer.Last
		r.end.App.Terminated, r.end.App.Gone = r.end.Began, r.answer.Last.Add(time.Millisecond)
		r.logLine = `[t] "GET /delay/10 HTTP/1.1" ` + terminationDetails + ` - "-" 0 95 5100 - "-"`
		return r
	}
	if row := judged(t, lost()); !row.OK {
		t.Errorf("%+v", row.Checks)
	}
	r := lost()
	r.answer.Tail = []byte("Bad Gateway")
	if judged(t, r).OK {
		t.Error("another body passes")
	}
	r = lost()
	r.logLine = `[t] "GET /delay/10 HTTP/1.1" 503 UF upstream_reset_before_response_started{remote_connection_failure}`
	if judged(t, r).OK {
		t.Error("another log line passes")
	}
}

// On a busy machine events may be later, by the measured delay. Outcomes and their order are still judged.
func TestJudgeOnABusyMachine(t *testing.T) {
	meter := fixedCPUWait(100 * time.Millisecond)
	p := &experiment{options: Options{Delay: DefaultDelay, Grace: strategy.DefaultGrace}, meter: meter}
	for _, tt := range []struct {
		name   string
		change func(*row)
		ok     bool
	}{
		{"some of it late", func(r *row) { r.end.Sidecar.Gone = r.answer.Last.Add(430 * time.Millisecond) }, true},
		{"seconds late", func(r *row) { r.end.Sidecar.Gone = r.answer.Last.Add(3 * time.Second) }, false},
		{"the wrong order", func(r *row) { r.end.App.Terminated = r.answer.Last.Add(-2 * time.Second) }, false},
		{"the wrong answer", func(r *row) { r.answer.Status = 503 }, false},
		{"SIGKILL", func(r *row) { r.end.App.Killed = r.answer.Last }, false},
	} {
		r := good(t, "lastcall-classic-exit")
		tt.change(r)
		if row := p.judge(r, "/delay/10"); row.OK != tt.ok || row.AllowanceMS != 400 || row.Unjudged {
			t.Errorf("%s: ok %v with %v ms allowed: %+v", tt.name, row.OK, row.AllowanceMS, row.Checks)
		}
	}
	r := good(t, "lastcall-classic-exit")
	r.end.Sidecar.Gone = r.answer.Last.Add(600 * time.Millisecond)
	if row := judged(t, r); row.OK || row.Unjudged {
		t.Error("on a quiet machine half a second late passes")
	}
}

// The allowance has a cap. On a machine for which it is too small a row that is only late is not judged, a wrong one
// is.
func TestJudgeOnATooBusyMachine(t *testing.T) {
	p := &experiment{options: Options{Delay: DefaultDelay, Grace: strategy.DefaultGrace}, meter: fixedCPUWait(time.Second)}
	late := good(t, "lastcall-classic-exit")
	late.end.Sidecar.Gone = late.answer.Last.Add(3 * time.Second)
	wrong := good(t, "lastcall-classic-exit")
	wrong.answer.Status, wrong.end.Sidecar.Gone = 503, late.end.Sidecar.Gone
	for _, tt := range []struct {
		name               string
		rows               []*row
		ok, result, unseen bool
	}{
		{"in time", []*row{good(t, "lastcall-classic-exit")}, true, true, false},
		{"late", []*row{late}, false, false, true},
		{"late, and another in time", []*row{late, good(t, "lastcall-native-exit")}, false, true, true},
		{"wrong", []*row{wrong}, false, false, false},
	} {
		var rows []Row
		for _, r := range tt.rows {
			rows = append(rows, p.judge(r, "/delay/10"))
		}
		res := p.result("/delay/10", rows)
		if first := rows[0]; first.OK != tt.ok || first.Unjudged != tt.unseen || res.OK != tt.result || first.AllowanceMS != 500 {
			t.Errorf("%s: ok %v, not judged %v, all %v, allowance %v: %+v", tt.name, first.OK, first.Unjudged, res.OK, first.AllowanceMS, first.Checks)
		}
		var b strings.Builder
		if err := res.WriteTable(&b, console.Style{}); err != nil || strings.Contains(b.String(), "1 not judged: the machine was too busy") != tt.unseen {
			t.Errorf("%s: %v\n%s", tt.name, err, &b)
		}
	}
}

// The kernel names clients, not requests: with a real Envoy a report has these.
func TestJudgeUnnamed(t *testing.T) {
	for _, tt := range []struct {
		open []drain.Conversation
		ok   bool
	}{
		{[]drain.Conversation{{Peer: "127.0.0.1:4711", Protocol: "http"}}, true},
		{nil, false},
		{[]drain.Conversation{{Protocol: "http"}}, false},
		{[]drain.Conversation{{Peer: "127.0.0.1:4711"}, {Peer: "127.0.0.1:4712"}}, false},
	} {
		r := &row{report: &drain.Report{Verdict: "cut", Open: tt.open}}
		if got := failures(judgeReport(r, expectation{named: true, unnamed: true}, "/delay/10")) == 0; got != tt.ok {
			t.Errorf("%v: got %v", tt.open, got)
		}
	}
}
