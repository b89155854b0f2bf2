package drain_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
)

// The kubelet reads 4096 bytes: what does not fit is left out, and it stays JSON.
func TestTerminationMessageFits(t *testing.T) {
	report := drain.Report{Verdict: drain.Cut, Trigger: "SIGTERM", Began: time.Unix(1e9, 0)}
	for range 500 {
		c := drain.Conversation{Peer: "10.0.0.1:1", Protocol: "http/1.1", Request: "GET /" + strings.Repeat("x", 200)}
		report.Open, report.HeldBy = append(report.Open, c), append(report.HeldBy, c)
		report.Faults = append(report.Faults, strings.Repeat("y", 100))
	}
	file := filepath.Join(t.TempDir(), "termination-log")
	var log bytes.Buffer
	report.Publish(slog.New(slog.NewJSONHandler(&log, nil)), file)
	if !strings.Contains(log.String(), `"left_out":400`) {
		t.Errorf("the log's record has %d bytes and leaves nothing out", log.Len())
	}
	b, err := os.ReadFile(file)
	must.Do(t, err)
	if len(b) > 4096 || !json.Valid(b) || !strings.Contains(string(b), `"verdict":"cut"`) {
		t.Errorf("%d bytes, valid %v", len(b), json.Valid(b))
	}
	got, ok := drain.ParseMessage(string(b))
	if !ok || len(got.Open) < 3 || len(got.Open)+got.LeftOut != 500 || len(got.HeldBy) == 0 || len(got.Faults) == 0 {
		t.Errorf("%v %+v", ok, got)
	}
}

// The log's message is the sentence for people, and a text log has no JSON in its values; a JSON log has the report.
func TestLogRecord(t *testing.T) {
	report := drain.Report{
		Verdict: drain.Cut, Mode: "exit-on-zero", Trigger: "SIGTERM", Duration: drain.Millis(3 * time.Second),
		Phases:  []drain.Span{{Phase: drain.Draining, Took: drain.Millis(1500 * time.Millisecond)}, {Phase: drain.Waiting, Took: drain.Millis(1500 * time.Millisecond)}},
		HeldBy:  []drain.Conversation{{Peer: "10.0.0.1:1", Protocol: "http/1.1", Request: "GET /a", Age: drain.Millis(2 * time.Second)}},
		Open:    []drain.Conversation{{Peer: "10.0.0.1:1", Protocol: "http/1.1", Request: "GET /a", Age: drain.Millis(3 * time.Second), Ending: "503"}},
		Finish:  &drain.Finish{After: drain.Millis(time.Second), Opaque: 2},
		Assumed: []string{"one", "two"}, Faults: []string{"three"}, Late: 1,
	}
	var text, js bytes.Buffer
	report.Publish(slog.New(slog.NewTextHandler(&text, nil)), "")
	_, line, _ := strings.Cut(text.String(), "level=INFO ")
	want := `msg="` + report.Summary() + `" verdict=cut mode=exit-on-zero trigger=SIGTERM duration_ms=3000 ` +
		`phases="draining 1.5s, waiting 1.5s" late=1 ` +
		`finish="the app's SIGTERM came after 1.0s, with 2 connections that only it can end" ` +
		`held_by="GET /a from 10.0.0.1 for 2s" open="GET /a from 10.0.0.1 (503) for 3s" ` + `assumed="one; two" faults=three` + "\n"
	if line != want {
		t.Errorf("got  %swant %s", line, want)
	}
	report.Publish(slog.New(slog.NewJSONHandler(&js, nil)), "")
	var got drain.Report
	if err := json.Unmarshal(js.Bytes(), &got); err != nil || !reflect.DeepEqual(got, report) {
		t.Errorf("%v: %s", err, &js)
	}
}

// A hook of an app writes its report itself, with as many assumed connections as there are ports.
func TestAHooksMessageFits(t *testing.T) {
	report := drain.Report{Verdict: drain.Assumed, Trigger: "hook", Began: time.Unix(1e9, 0)}
	for range 500 {
		report.Assumed = append(report.Assumed, strings.Repeat("z", 100))
	}
	file := filepath.Join(t.TempDir(), "termination-log")
	must.Do(t, drain.WriteMessage(file, report))
	b, err := os.ReadFile(file)
	must.Do(t, err)
	if got, ok := drain.ParseMessage(string(b)); !ok || len(b) > 4096 || len(got.Assumed) == 0 {
		t.Errorf("%d bytes: %v, %d assumed", len(b), ok, len(got.Assumed))
	}
}

func TestParseMessage(t *testing.T) {
	report := drain.Report{
		Verdict: drain.Clean, Mode: "exit-on-zero", Trigger: "SIGTERM", Began: time.Unix(1e9, 0).UTC(), Duration: drain.Millis(12 * time.Second),
		Phases: []drain.Span{{Phase: drain.Draining, Took: drain.Millis(5 * time.Second)}, {Phase: drain.LastCall, Took: 0}},
		HeldBy: []drain.Conversation{{Peer: "10.0.0.1:1", Protocol: "grpc", Request: "POST /a.B/C", Age: drain.Millis(time.Second)}},
	}
	text, err := json.Marshal(report)
	must.Do(t, err)
	if got, ok := drain.ParseMessage(string(text)); !ok || !reflect.DeepEqual(got, report) {
		t.Errorf("%v %+v", ok, got)
	}
	for _, foreign := range []string{
		"", "{}", "null", "[]", "panic: boom", `{"verdict":"guilty","trigger":"SIGTERM","began":"2001-09-09T01:46:40Z"}`,
		`{"verdict":"clean"}`, string(text[:len(text)/2]), `{"verdict":"clean","trigger":"SIGTERM","began":"2001-09-09T01:46:40Z","phases":[{"phase":"lunch","ms":1}]}`,
	} {
		if got, ok := drain.ParseMessage(foreign); ok {
			t.Errorf("%s was read as %+v", foreign, got)
		}
	}
}
