package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
