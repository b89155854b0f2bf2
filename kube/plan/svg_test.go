package plan

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// The picture is XML, whatever the names are, and has all looks of its events.
func TestDraw(t *testing.T) {
	const s = time.Second
	out := string(draw([]row{
		{"others & more", "fixed drain of 5 s", "503 after 5 s", "bad", false,
			[]event{{"lost", 0, 5 * s}, {"needed", 0, 5 * s}, {"kill", 5 * s, 5 * s}}},
		{"ours", "GET </delay/10>", "200 after 10 s", "good", true,
			[]event{{"answered", 0, 10 * s}, {"idle", 0, 10 * s}, {"term", 10 * s, 10 * s}, {"gone", 10 * s, 10 * s}}},
	}, 0))
	d := xml.NewDecoder(strings.NewReader(out))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, out)
		}
	}
	for _, want := range []string{"others &amp; more", "GET &lt;/delay/10&gt;", `class="lost"`, "10 s", `class="bad"`,
		`class="ours"`, "503 after 5 s", "prefers-color-scheme: dark"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q", want)
		}
	}
}
