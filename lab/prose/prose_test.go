package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
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
		"possessive":     {"Close is net.Conn's.", "Close implements net.Conn."},
		"goodbye":        {"its goodbye", "its GOAWAY"},
		"without effect": {"is without effect", "has no effect"},
		"is over":        {"the drain is over", "the connection is over TLS"},
		"spoken to":      {"is spoken to", "is spoken"},
		"goes on":        {"goes on", "is gone once"},
		"for ever":       {"waits for ever", "forever"},
		"known":          {"what is known", "is known as"},
		"hear of":        {"hears of it", "hears it"},
		"at the latest":  {"after 1 s at the\n latest", "that the latest version"},
		"under way":      {"requests under way", "in the same way"},
		"heed":           {"heeds its context", "needed"},
		"small letters":  {"in small letters", "small letterheads"},
	} {
		found := check(rules, sentences[0])
		if !slices.ContainsFunc(found, func(f finding) bool { return f.rule.name == rule }) {
			t.Errorf("%q has no finding of rule %q: %v", sentences[0], rule, found)
		}
		if rule == "tell" {
			continue // has no exception
		}
		if found := check(rules, sentences[1]); len(found) > 0 {
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
			for _, f := range check(rules, p.text) {
				got = append(got, p.line+f.line)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: findings in lines %v, want %v", c.file, c.content, got, c.want)
		}
	}
}

// TestTree checks a checkout with two findings, one of them in a folder, and then without any.
func TestTree(t *testing.T) {
	top := t.TempDir()
	if out, err := exec.Command("git", "-C", top, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	must.Do(t, os.Mkdir(filepath.Join(top, "docs"), 0o700))
	write := func(file, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(top, file), []byte(text), 0o600))
	}
	write("a.md", "a\nanew\n")
	write("docs/b.md", "told\n")
	for _, c := range []struct {
		narrow []string
		ok     bool
		want   []string
	}{
		{nil, false, []string{`a.md:2: "anew": write`, `docs/b.md:1: "told": write`}},
		{[]string{"./docs/"}, false, []string{`docs/b.md:1: "told": write`}},
		{[]string{"c.md"}, true, nil},
	} {
		var out bytes.Buffer
		if ok, err := run(&out, top, c.narrow); ok != c.ok || err != nil {
			t.Errorf("%+v: %v, %v", c, ok, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%+v: %q is missing in:\n%s", c, want, &out)
			}
		}
		if len(c.narrow) > 0 && strings.Contains(out.String(), "a.md") {
			t.Errorf("%+v lists another folder:\n%s", c, &out)
		}
	}
	write("a.md", "new\n")
	write("docs/b.md", "new\n")
	var out bytes.Buffer
	if ok, err := run(&out, top, nil); !ok || err != nil || out.Len() > 0 {
		t.Errorf("without findings: %v, %v: %s", ok, err, &out)
	}
}

// TestPage compares the table of docs/writing.md with the rules.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing.md")
	must.Do(t, err)
	var table strings.Builder
	for _, r := range rules {
		table.WriteString("| " + r.name + " | " + r.instead + " |\n")
	}
	if !strings.Contains(string(page), "|---|---|\n"+table.String()+"\n") {
		t.Errorf("docs/writing.md must have this table:\n%s", &table)
	}
}

// The words of an identifier are checked apart from each other.
func TestIdentifiers(t *testing.T) {
	const code = "package p\n\nfunc awaitTold(HTTPGuest int) {\n\ttolder, flag := 1, flag.VisitAll\n\tstdoutSaid()\n}\n"
	var got []string
	for _, p := range identifierPassages([]byte(code)) {
		for _, f := range check(nameRules, p.text) {
			got = append(got, fmt.Sprint(p.line, " ", f.text))
		}
	}
	if want := []string{"3 Told", "3 Guest", "5 Said"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
