package service

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin/httpbintest"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

func TestMain(m *testing.M) { httpbintest.Main(m) }

// An app that exits at SIGTERM loses requests in flight and new ones. Behind a sleep that outlasts the propagation
// delay no connection is refused; clients that keep theirs alive still lose requests at SIGTERM.
func TestService(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	request, err := load.ParseRequest("GET /delay/0.5")
	must.Do(t, err)
	res, err := Run(t.Context(), Options{
		Command: "lastcallctl httpbin --listen 127.0.0.1:{port} --max-delay 10s --on-term exit",
		Options: load.Options{Requests: []load.Request{request}}, Propagation: 2 * time.Second,
		Setup: strategy.Setup{Strategies: []string{"as-is", "sleep-5s"}},
		Pod:   Pod{Workload: "Deployment web", Grace: 10 * time.Second},
	})
	must.Do(t, err)
	asIs, sleep := res.Rows[0], res.Rows[1]
	if res.OK || asIs.Reasons[traffic.Ended] < callers || asIs.Reasons[traffic.Refused] == 0 {
		t.Errorf("as-is: %+v", asIs)
	}
	for _, l := range sleep.Losses {
		if !strings.Contains(l.Fix, "kept connections") {
			t.Errorf("with a sleep: advice %q", l.Fix)
		}
	}
	if sleep.Reasons[traffic.Refused] > 0 || sleep.Requests < 10 || sleep.GoneMS() < 5000 {
		t.Errorf("with a sleep: %+v", sleep)
	}
	write := func(f func(*bytes.Buffer) error) string {
		var b bytes.Buffer
		must.Do(t, f(&b))
		return b.String()
	}
	text := write(func(b *bytes.Buffer) error { return res.WriteTable(b, console.Style{}) })
	for _, want := range []string{"no response after SIGTERM", "refused after the pod's end",
		"with a preStop sleep of 3 or", "as-is lost "} {
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
	text = write(func(b *bytes.Buffer) error { return json.NewEncoder(b).Encode(res) })
	must.Do(t, json.Unmarshal([]byte(text), &again))
	if again.Rows[0].Lost != asIs.Lost || again.Schema != outcome.Schema {
		t.Errorf("JSON: %+v", again)
	}
}

// The list changes after the delay, and not before.
func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published atomic.Pointer[[]string]
		now := func() []string { return *published.Load() }
		publish := func(list []string) { published.Store(&list) }
		replace := newView(func() time.Duration { return 4 * time.Second }, []string{"a", "b"}, publish)
		go replace(t.Context(), "a", "c")
		time.Sleep(4*time.Second - time.Millisecond)
		synctest.Wait()
		if !slices.Equal(now(), []string{"a", "b"}) {
			t.Errorf("before the delay %v", now())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !slices.Equal(now(), []string{"b", "c"}) {
			t.Errorf("after the delay %v", now())
		}
	})
}
