package meshconfig

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTableDefaults compares the table's defaults with those in force.
func TestTableDefaults(t *testing.T) {
	s, err := Resolve(Input{})
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, r := range s.rows() {
		shown[r.Setting] = strings.Trim(literal(r.Value), `"`)
	}
	for _, one := range Table() {
		value, printed := shown[one.Name]
		if one.ContainerOnly {
			continue
		}
		if value == "[]" {
			value = ""
		}
		if !printed || strings.Replace(value, "1m0s", "60s", 1) != one.Default {
			t.Errorf("%s: the table says %q, lastcall config prints %q (printed: %v)", one.Name, one.Default, value, printed)
		}
	}
}

// TestTableFlags sets every flag to its default, which must be accepted.
func TestTableFlags(t *testing.T) {
	for _, one := range Table() {
		if one.Flag == "" || one.ContainerOnly || one.Default == "" {
			continue
		}
		name := "--" + one.Flag
		s, err := Resolve(Input{Flags: map[string]Flag{one.Name: {name, one.Default}}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, r := range s.rows() {
			if r.Setting == one.Name && r.Source != "flag "+name {
				t.Errorf("%s: source %q", one.Name, r.Source)
			}
		}
		_, err = Resolve(Input{Flags: map[string]Flag{one.Name: {name, "no such value"}}})
		if err == nil || !strings.HasPrefix(err.Error(), name+` "no such value": must be `) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestDocumentedTable holds docs/configuration.md and docs/how.md to the table.
func TestDocumentedTable(t *testing.T) {
	const begin, end = "<!-- settings: generated -->\n", "<!-- end of settings -->"
	const page = "../../../docs/configuration.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), begin)
	have, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the lines %q and %q", page, begin, end)
	}
	var want strings.Builder
	group := ""
	for _, s := range Table() {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&want, "\n### %s\n\n| setting | flag | default | |\n|---|---|---|---|\n", group)
		}
		name, flagName := "`"+s.Name+"`", ""
		switch {
		case s.Field:
			name += " (ProxyConfig)"
		case s.ContainerOnly:
			name += " (container only)"
		}
		if s.Flag != "" {
			flagName = "`--" + s.Flag + "`"
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", name, flagName, s.Default, strings.ReplaceAll(s.Usage, "|", `\|`))
	}
	want.WriteString("\n")
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+want.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != want.String() {
		t.Errorf("%s differs from Table: run go test ./internal/sidecar/meshconfig -run TestDocumentedTable -update", page)
	}

	how, err := os.ReadFile("../../../docs/how.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(how)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		name := strings.Trim(strings.TrimSpace(cells[1]), "`")
		for _, s := range Table() {
			if s.Name != name {
				continue
			}
			rows++
			if got := strings.TrimSpace(cells[2]); got != s.Default {
				t.Errorf("docs/how.md: %s has default %q, the table %q", name, got, s.Default)
			}
		}
	}
	if rows == 0 {
		t.Error("docs/how.md shows no setting")
	}
}
