package meshconfig

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
)

// TestTableDefaults compares the table's defaults with those in force.
func TestTableDefaults(t *testing.T) {
	s, err := Resolve(Input{})
	must.Do(t, err)
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
		name, preset := "--"+one.Flag, one.Default
		if one.Name == VariableGracePeriod {
			preset += "s" // only the variable has no unit
		}
		s, err := Resolve(Input{Flags: map[string]Flag{one.Name: {name, preset}}})
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
	must.Do(t, err)
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
		must.Do(t, os.WriteFile(page, []byte(head+begin+want.String()+end+tail), 0o644))
		return
	}
	if have != want.String() {
		t.Errorf("%s differs from Table: run go test ./internal/sidecar/meshconfig -run TestDocumentedTable -update", page)
	}

	how, err := os.ReadFile("../../../docs/how.md")
	must.Do(t, err)
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

var update = flag.Bool("update", false, "write the golden files")

func TestPrintedSettings(t *testing.T) {
	s, err := Resolve(places{
		mesh:       "defaultConfig:\n  drainDuration: 60s\n  concurrency: 2\n  proxyMetadata:\n    MINIMUM_DRAIN_DURATION: 15s\n",
		proxy:      `{"holdApplicationUntilProxyStarts": true, "proxyStatsMatcher": {"inclusionRegexps": [".*downstream_cx_active"]}}`,
		annotation: "terminationDrainDuration: 40s\nLASTCALL_QUIET_TIME: 1s\n",
		env:        []string{"TERMINATION_GRACE_PERIOD_SECONDS=16"},
		port:       16020,
	}.input())
	must.Do(t, err)
	var text, js bytes.Buffer
	must.Do(t, s.WriteText(&text))
	raw, err := json.Marshal(s)
	must.Do(t, err)
	must.Do(t, json.Indent(&js, raw, "", "  "))
	js.WriteByte('\n')
	golden(t, "testdata/settings.txt", text.Bytes())
	golden(t, "testdata/settings.json", js.Bytes())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(name, got, 0o644))
	}
	want, err := os.ReadFile(name)
	must.Do(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -run %s -update updates it); got\n%s", name, t.Name(), got)
	}
}

// TestPublishedGuides takes the configurations that users have copied from the
// published guides, mistakes included. What `lastcall config` prints of each stands
// next to it in testdata.
func TestPublishedGuides(t *testing.T) {
	guides := map[string]drain.Mode{ // with --compat istio
		"global-exit-on-zero-15s.yaml":      drain.IstioExitOnZero,
		"global-termination-drain-30s.yaml": drain.Fixed,
		"per-pod-exit-on-zero.yaml":         drain.IstioExitOnZero,
		"per-pod-nested-stats-matcher.yaml": drain.IstioExitOnZero,
		"per-pod-termination-drain.yaml":    drain.Fixed,
		"prestop-netstat.yaml":              drain.Fixed, // has no proxy configuration at all
	}
	files, err := filepath.Glob("testdata/guides/*.yaml")
	if err != nil || len(files) != len(guides) {
		t.Fatalf("guides %v (error %v), want %d", files, err, len(guides))
	}
	for _, file := range files {
		want := guides[filepath.Base(file)]
		t.Run(filepath.Base(file), func(t *testing.T) {
			in := guide(t, file)
			s, err := Resolve(in.input())
			must.Do(t, err)
			var text bytes.Buffer
			must.Do(t, s.WriteText(&text))
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", text.Bytes())
			in.compat = CompatIstio
			s, err = Resolve(in.input())
			must.Do(t, err)
			if s.Mode() != want {
				t.Errorf("mode with --compat istio %v, want %v", s.Mode(), want)
			}
		})
	}
}

// guide takes what the proxy would see of a manifest: an IstioOperator is the
// mesh config file, a workload has its annotation.
func guide(t *testing.T, file string) places {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Do(t, err)
	manifest, _, err := parseTree(string(text))
	must.Do(t, err)
	if manifest["kind"] == "IstioOperator" {
		return places{mesh: string(text)}
	}
	var p places
	at := manifest
	for _, key := range []string{"spec", "template", "metadata", "annotations"} {
		at, _ = at[key].(tree)
	}
	p.annotation, _ = at[AnnotationConfig].(string)
	return p
}
