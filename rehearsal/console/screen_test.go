package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestNumbers(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Second: "5 s", 1500 * time.Millisecond: "1.5 s", 5250 * time.Millisecond: "5.25 s",
		250 * time.Millisecond: "250 ms", 0: "0 s", 40 * time.Second: "40 s", time.Minute: "60 s",
	} {
		if got := Round(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	if got := Left("é", 3) + "|" + Right("é", 3) + "|" + Left("long", 2); got != "é  |  é|long" {
		t.Errorf("got %q", got)
	}
	if got := Cut("a, b, c", 5); got != "a, b…" {
		t.Errorf("got %q", got)
	}
	if n := utf8.RuneCountInString(Style{}.Heading("Istio's ways")); n != Width {
		t.Errorf("a heading has %d columns", n)
	}
}

// A file is no terminal: nothing is coloured there, and nothing overwritten.
func TestFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if StyleFor(f).Colour {
		t.Error("a file is coloured")
	}
	p := NewProgress(f, func() string { return "one" })
	p.Show(func() string { return "two" })
	p.End()
	if got, err := os.ReadFile(f.Name()); err != nil || len(got) > 0 {
		t.Errorf("a short run wrote %q (%v)", got, err)
	}
}

func TestColour(t *testing.T) {
	if got := (Style{Colour: true}).Good("x"); got != "\x1b[32mx\x1b[0m" {
		t.Errorf("got %q", got)
	}
	if got := (Style{}).Mark(true) + (Style{}).Mark(false); strings.Contains(got, "\x1b") || got != "✓✗" {
		t.Errorf("got %q", got)
	}
}
