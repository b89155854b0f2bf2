package hall

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin/httpbintest"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

var all = flag.Bool("hall", false, "rehearse all servers that are installed, not two of them")

func TestMain(m *testing.M) { httpbintest.Main(m) }

// Each bug loses requests, and its fixed twin none.
func TestHall(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	names := []string{"http.server"}
	if _, err := exec.LookPath("node"); err == nil {
		names = append(names, "websocket")
	}
	if *all {
		names = nil
	}
	res, err := Run(t.Context(), Options{Names: names, Bare: true, Stacks: os.Getenv("LASTCALL_STACKS")})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range res.Rows {
		switch {
		case o.Name == "go": // needs the rehearsal's own program
		case o.Skipped != "":
			t.Logf("%s: %s", o.Name, o.Skipped)
		case !o.OK():
			t.Errorf("%+v", o)
		}
		if o.Name == "http.server" && o.Skipped == "" && o.Short == 0 {
			t.Errorf("no response was silently short: %+v", o)
		}
	}
}

func TestRowsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows() {
		if r.Name == "" || r.Bug == "" || r.Fix == "" || r.Buggy.Command == "" || seen[r.Name] {
			t.Errorf("row %+v", r)
		}
		seen[r.Name] = true
		for _, text := range r.Requests {
			if _, err := load.ParseRequest(text); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
	}
	var option strategy.OptionError
	if _, err := Run(t.Context(), Options{Names: []string{"iis"}}); !errors.As(err, &option) {
		t.Errorf("got %v", err)
	}
}

func TestTable(t *testing.T) {
	res := &Result{TookMS: 10_000, Rows: []Outcome{
		{Name: "node", Bug: strings.Repeat("bug ", 30), Fix: strings.Repeat("fix ", 30), Requests: 30, Lost: 9, GoneMS: 10, FixedGoneMS: 3100, LastcallLost: -1, TookMS: 9000},
		{Name: "caddy", Skipped: "caddy is not installed"},
		{Name: "java", Error: "app of as-is: exited"},
	}}
	var b bytes.Buffer
	if err := res.WriteTable(&b, console.Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"✓ node                   9         0     0.0 s         0     3.1 s         -\n", "not run: caddy is not installed", "✗ java: app of as-is: exited", "1 of 2 bugs found, 10 s; the slowest server took 9 s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if res.Passed() {
		t.Error("a server that did not start is no success")
	}
	if _, err := json.Marshal(res); err != nil {
		t.Errorf("JSON: %v", err)
	}
}
