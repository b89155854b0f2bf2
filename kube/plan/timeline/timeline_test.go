package timeline

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func chart() Chart {
	s := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	return Chart{
		Title: "One request of ten seconds & the end of its pod",
		Rows: []Row{
			{Group: "others", Label: "fixed drain of 5 s", Outcome: "503 after 5 s", Verdict: Bad, Spans: []Span{{Lost, 0, s(5)}, {Needed, 0, s(5)}}, Marks: []Mark{{Kill, s(5)}}},
			{Group: "ours", Label: "GET </delay/10>", Outcome: "200 after 10 s", Verdict: Good, IsOurs: true, Spans: []Span{{Answered, 0, s(10)}, {Needed, 0, s(10)}}, Marks: []Mark{{Term, s(10)}, {Gone, s(10.01)}}},
		},
	}
}

func TestSVG(t *testing.T) {
	out, err := chart().SVG()
	must.Do(t, err)
	d := xml.NewDecoder(strings.NewReader(string(out)))
	d.Strict = true
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, out)
		}
	}
	for _, want := range []string{"ten seconds &amp; the end", "GET &lt;/delay/10&gt;", `class="lost"`, "10 s", `class="bad"`, `class="ours"`, "503 after 5 s", "prefers-color-scheme: dark"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("lacks %q", want)
		}
	}
}

func TestNoLength(t *testing.T) {
	if _, err := (Chart{Title: "nothing"}).SVG(); err == nil {
		t.Fatal("no error")
	}
}
