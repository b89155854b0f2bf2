package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRules has a sentence for each rule, and for each exception one that stays.
func TestRules(t *testing.T) {
	for rule, sentences := range map[string][2]string{
		"accepted is":    {"--mode %q: accepted are a and b", "a connection accepted is counted"},
		"be had":         {"what cannot be had is skipped", "the bad have been bad"},
		"nobody":         {"Whoever comes late", "the user nobody reads it"},
		"anew":           {"begins anew", "a new one begins"},
		"told":           {"the app is told", "stolen goods"},
		"tell":           {"this tells the end from a restart", "telling is a word"},
		"said":           {"as was said before", "the header reads close"},
		"say":            {"it says which one", "the log says nothing"},
		"any more":       {"not there any\n more", "any more than before"},
		"beside":         {"beside the sidecar", "besides"},
		"who":            {"who has asked", "users who run Istio"},
		"what comes":     {"what comes in", "what the client sees"},
		"way in":         {"a way in", "the way in which it ends"},
		"go by":          {"the gateway goes by it", "it goes bytewise"},
		"as it stands":   {"is understood as it stands", "as it stood"},
		"asked":          {"when asked for it", "it asks the kernel"},
		"theatre":        {"a Theatre of habits", "an environment"},
		"taken back":     {"the drain is taken back", "it is cancelled"},
		"learnt":         {"is learnt of", "it learned"},
		"let go":         {"lets go of it", "outlet gone"},
		"archaic":        {"whereupon it ends", "a client SHALL send"},
		"bear":           {"cannot bear it", "a bearer"},
		"mend":           {"mended since", "amendment"},
		"goodbye":        {"its goodbye", "its GOAWAY"},
		"without effect": {"is without effect", "has no effect"},
		"is over":        {"the drain is over", "the connection is over TLS"},
		"spoken to":      {"is spoken to", "is spoken"},
		"goes on":        {"goes on", "is gone once"},
		"for ever":       {"waits for ever", "forever"},
		"known":          {"what is known", "is known as"},
		"hear of":        {"hears of it", "hears it"},
	} {
		found := check(sentences[0])
		if !slices.ContainsFunc(found, func(f finding) bool { return f.rule.name == rule }) {
			t.Errorf("%q has no finding of rule %q: %v", sentences[0], rule, found)
		}
		if rule == "tell" {
			continue // has no exception
		}
		if found := check(sentences[1]); len(found) > 0 {
			t.Errorf("%q has a finding: %v", sentences[1], found)
		}
	}
	for _, r := range rules {
		if r.instead == "" {
			t.Errorf("rule %q does not name a replacement", r.name)
		}
	}
}

func TestPassages(t *testing.T) {
	for _, c := range []struct {
		file, content string
		want          []int // lines with a finding
	}{
		{"a.go", "package a\n\n// It cannot be\n// had.\nvar told = \"told\" // told\n", []int{3, 5}},
		{"a.go", "package a\n\nvar a = \"a b\" +\n\t`c\nis told`\n", []int{5}},
		{"a.go", "package a\n\n// It is\nvar a = 1\n// told\n", []int{5}},
		{"a.md", "told\n\n    told\n\n```\ntold\n```\n`told` [a](told.md)\n\n- a\n\n    told\n", []int{1, 12}},
		{"a.yaml", "a: b # told\n# cannot be\n# had\n", []int{1, 2}},
		{"go.sum", "told", nil},
		{"binary", "told\x00", nil},
	} {
		var got []int
		for _, p := range passages(c.file, []byte(c.content)) {
			for _, f := range check(p.text) {
				got = append(got, p.line+f.line)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: findings in lines %v, want %v", c.file, c.content, got, c.want)
		}
	}
}

// TestRatchet goes through a checkout's life: two findings allowed, one more refused, one fewer lowered, none left.
func TestRatchet(t *testing.T) {
	top := t.TempDir()
	if out, err := exec.Command("git", "-C", top, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(top, "a.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(top, "lab/prose"), 0o700); err != nil {
		t.Fatal(err)
	}
	prose := func(lower bool) (string, bool, error) {
		var out bytes.Buffer
		ok, err := run(&out, top, false, false, lower, nil)
		return out.String(), ok, err
	}

	write("told\nanew\n")
	if out, ok, err := prose(false); ok || err != nil || !strings.Contains(out, `a.md:2: "anew": write`) {
		t.Errorf("without a ratchet: %v, %v: %s", ok, err, out)
	}
	if _, _, err := prose(true); err != nil {
		t.Error(err)
	}
	if out, ok, err := prose(false); !ok || err != nil {
		t.Errorf("as many as the ratchet has: %v: %s", err, out)
	}
	write("told\nanew\nbeside\n")
	if out, ok, err := prose(false); ok || err != nil || !strings.Contains(out, ". has 3 findings, 2 are allowed") {
		t.Errorf("more than the ratchet has: %v, %v: %s", ok, err, out)
	}
	if _, _, err := prose(true); err == nil {
		t.Error("the ratchet was raised")
	}
	write("anew\n")
	if out, ok, err := prose(false); !ok || err != nil {
		t.Errorf("fewer than the ratchet has: %v: %s", err, out)
	}
	write("new\n")
	if _, _, err := prose(true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(top, ratchetFile)); !os.IsNotExist(err) {
		t.Errorf("the ratchet of a checkout without findings is still there: %v", err)
	}
}

// TestPage compares the table of docs/writing.md with the rules.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, r := range rules {
		table.WriteString("| " + r.name + " | " + r.instead + " |\n")
	}
	if !strings.Contains(string(page), "|---|---|\n"+table.String()+"\n") {
		t.Errorf("docs/writing.md must have this table:\n%s", &table)
	}
}
