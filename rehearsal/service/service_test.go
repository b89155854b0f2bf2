package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin/httpbintest"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

func TestMain(m *testing.M) { httpbintest.Main(m) }

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]Span{"4s": {0, 4 * time.Second}, "1s..4s": {time.Second, 4 * time.Second}, "0s": {}} {
		if got, err := ParseSpan(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "4s..1s", "-1s", "1h"} {
		if got, err := ParseSpan(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestOptions(t *testing.T) {
	_, err := Run(t.Context(), Options{Pod: Pod{Grace: 1}, Load: -1, Repeat: -1, Timeout: 1, Strategies: []string{"x"}})
	var option strategy.OptionError
	if !errors.As(err, &option) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"missing --app: the command that starts your service", "missing --request", "--grace is 1ns", "--load is -1/s", "--repeat is -1", "--timeout is 1ns", `unknown strategy "x": must be one of as-is, lastcall,`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// In which phase a request is lost, and that there is advice for it.
func TestPhase(t *testing.T) {
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	exits := strategy.End{App: node.Ending{Terminated: at(1000), Gone: at(1005)}, AppExit: "exit 0"}
	killed := strategy.End{App: node.Ending{Terminated: at(1000), Killed: at(5000), Gone: at(5002)}, AppExit: "SIGKILL"}
	for _, tt := range []struct {
		name     string
		end      strategy.End
		from, to int
		outcome  traffic.Outcome
		reason   load.Reason
		want     outcome.Phase
	}{
		{"cut by the exit", exits, 500, 1004, traffic.Outcome{Failure: traffic.Ended}, load.Dropped, outcome.Terminating},
		{"refused after the end", exits, 2000, 2001, traffic.Outcome{Failure: traffic.Refused}, load.Refused, outcome.Gone},
		{"refused while the app drains", killed, 2000, 2001, traffic.Outcome{Failure: traffic.Refused}, load.Refused, outcome.Terminating},
		{"cut by SIGKILL", killed, 2000, 5001, traffic.Outcome{Failure: traffic.Truncated}, load.Truncated, outcome.Killed},
		{"503 in the hook", exits, 100, 200, traffic.Outcome{Failure: "503"}, "503", outcome.InHook},
		{"before", exits, -500, -100, traffic.Outcome{Failure: traffic.Ended}, load.Dropped, outcome.Serving},
		{"of the new pod", exits, 1500, 1600, traffic.Outcome{Failure: "500", Address: "new"}, "500", outcome.Elsewhere},
	} {
		tr := &trial{deleted: zero, end: tt.end, next: &strategy.Pod{Address: "new"}, options: &Options{Propagation: DefaultPropagation, Pod: Pod{Grace: 5 * time.Second}}}
		o := tt.outcome
		o.Began, o.Last = at(tt.from), at(tt.to)
		if when := tr.phase(o, tt.reason); when != tt.want {
			t.Errorf("%s: got %q", tt.name, when)
		}
		if tr.fix(load.Reference{Took: time.Second}, tt.reason, tt.want, false) == "" {
			t.Errorf("%s: no advice", tt.name)
		}
	}
}

// An app that exits at SIGTERM loses requests in flight and new ones. Behind a sleep that outlasts the propagation delay no
// connection is refused; clients that keep theirs alive still lose requests at SIGTERM.
func TestService(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	request, err := load.ParseRequest("GET /delay/0.5")
	if err != nil {
		t.Fatal(err)
	}
	res, err := Run(t.Context(), Options{
		Command: "lastcallctl httpbin --listen 127.0.0.1:{port} --max-delay 10s --on-term exit", Requests: []load.Request{request},
		Strategies: []string{"as-is", "sleep-5s"}, Propagation: Span{0, 2 * time.Second}, Pod: Pod{Workload: "Deployment web", Grace: 10 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	asIs, sleep := res.Rows[0], res.Rows[1]
	if res.OK || asIs.Reasons[load.Dropped] < callers || asIs.Reasons[load.Refused] == 0 {
		t.Errorf("as-is: %+v", asIs)
	}
	for _, l := range sleep.Losses {
		if !strings.Contains(l.Fix, "kept connections") {
			t.Errorf("with a sleep: advice %q", l.Fix)
		}
	}
	if sleep.Reasons[load.Refused] > 0 || sleep.Requests < 10 || sleep.GoneMS() < 5000 {
		t.Errorf("with a sleep: %+v", sleep)
	}
	write := func(f func(*bytes.Buffer) error) string {
		var b bytes.Buffer
		if err := f(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := write(func(b *bytes.Buffer) error { return res.WriteTable(b, console.Style{}) })
	for _, want := range []string{"no response after SIGTERM", "refused after the pod's end", "with a preStop sleep of 3 or", "as-is lost "} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	var again outcome.Result
	if err := json.Unmarshal([]byte(write(func(b *bytes.Buffer) error { return json.NewEncoder(b).Encode(res) })), &again); err != nil || again.Rows[0].Lost != asIs.Lost || again.Schema != outcome.Schema {
		t.Errorf("JSON: %+v, %v", again, err)
	}
}
