package rehearsal

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

var update = flag.Bool("update", false, "write the golden files again")

// sample is a result with every kind of row.
func sample(t *testing.T) *Result {
	t.Helper()
	lost := good(t, "istio-default")
	lost.answer.Status, lost.answer.Tail = 503, []byte(terminationBody)
	lost.answer.Last = lost.end.Began.Add(5 * time.Second)
	lost.end.Sidecar.Gone, lost.end.App.Gone = lost.answer.Last.Add(2*time.Millisecond), lost.answer.Last
	lost.logLine = terminationDetails

	killed := good(t, "istio-exit-on-zero-idle")
	killed.end.Sidecar.Killed = killed.end.Began.Add(30 * time.Second)
	killed.end.Sidecar.Gone = killed.end.Sidecar.Killed

	wrong := good(t, "istio-exit-on-zero")
	wrong.answer.Status, wrong.answer.Detail, wrong.answer.Last = 0, os.ErrDeadlineExceeded.Error(), wrong.end.Began.Add(time.Second)

	cut := good(t, "grace-7s-lastcall")
	cut.answer.Status, cut.answer.Last = 503, cut.end.Began.Add(5250*time.Millisecond)
	cut.end.App.Terminated, cut.end.App.Gone = cut.answer.Last, cut.answer.Last.Add(3*time.Millisecond)
	cut.end.Sidecar.Gone = cut.answer.Last.Add(4 * time.Millisecond)
	cut.logLine = viaUpstream
	cut.report = &drain.Report{Verdict: "cut", Open: []drain.Conversation{{Request: "GET /delay/10", Age: drain.Millis(5350 * time.Millisecond), Ending: "503"}}}

	p := &experiment{
		options: Options{Delay: DefaultDelay, Grace: strategy.DefaultGrace},
		rows:    []*row{lost, wrong, killed, cut, good(t, "lastcall-native-exit")},
	}
	res := p.result("/delay/10", judgedRows(p, "/delay/10"))
	res.TookMS = 30570
	return res
}

func judgedRows(p *experiment, path string) (rows []Row) {
	for _, r := range p.rows {
		rows = append(rows, p.judge(r, path))
	}
	return rows
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := sample(t).WriteTable(&b, console.Style{}); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s(go test -update rewrites it)", b.String(), want)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > console.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Every row of the real table fits the terminal, also with its expectation, is there once, and uses a wide one.
func TestTableFits(t *testing.T) {
	p := &experiment{options: Options{Delay: 3 * time.Second, Grace: strategy.DefaultGrace}}
	for _, s := range strategy.Strategies() {
		p.rows = append(p.rows, good(t, s.Name))
	}
	res := p.result("/delay/3", judgedRows(p, "/delay/3"))
	res.TookMS = 30570
	for _, columns := range []int{56, 80, 100, 140} {
		var b bytes.Buffer
		if err := res.WriteTable(&b, console.Style{Columns: columns}); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(b.String()) {
			n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			if widest = max(widest, n); n > columns {
				t.Errorf("%d columns of %d: %s", n, columns, line)
			}
		}
		if widest < columns {
			t.Errorf("no line uses the %d columns:\n%s", columns, b.String())
		}
		for _, r := range res.Rows {
			named := slices.DeleteFunc(strings.Fields(b.String()), func(word string) bool { return word != r.Strategy })
			if len(named) != 1 {
				t.Errorf("%d columns: %s is there %d times", columns, r.Strategy, len(named))
			}
		}
		if !strings.Contains(b.String(), res.Rows[len(res.Rows)-1].Group+"\n") && columns >= 80 {
			t.Errorf("%d columns: the summary does not name the last ways:\n%s", columns, b.String())
		}
	}
}

// TestNetworkNamespaceNote has the note of a failed row of a classic sidecar next to Istio's agent.
func TestNetworkNamespaceNote(t *testing.T) {
	for _, isOK := range []bool{true, false} {
		r := sample(t)
		r.Rows = append(r.Rows, Row{Strategy: "lastcall-istio-classic", OK: isOK})
		var b bytes.Buffer
		if err := r.WriteTable(&b, console.Style{}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "unshare -rn") == isOK {
			t.Errorf("the row is as expected: %v; the table:\n%s", isOK, b.String())
		}
	}
}
