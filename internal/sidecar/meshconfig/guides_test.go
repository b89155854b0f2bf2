package meshconfig

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
)

// TestPublishedGuides takes the configurations that users have copied from the
// published guides, mistakes included. What `lastcall config` prints of each stands
// next to it in testdata.
func TestPublishedGuides(t *testing.T) {
	type expect struct {
		mode     drain.Mode
		istio    drain.Mode // with --compat istio
		settings map[string]string
		warnings []string
	}
	guides := map[string]expect{
		"global-exit-on-zero-15s.yaml": {drain.ExitOnZero, drain.IstioExitOnZero,
			map[string]string{"MINIMUM_DRAIN_DURATION": "15s", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true"},
			[]string{"spec.meshConfig (mesh file mesh.yaml, line 4): wrapped as in an IstioOperator"}},
		"global-termination-drain-30s.yaml": {drain.ExitOnZero, drain.Fixed,
			map[string]string{"terminationDrainDuration": "30s"},
			[]string{"wrapped as in an IstioOperator", "not used: lastcall leaves as soon as nothing is in flight"}},
		"per-pod-exit-on-zero.yaml": {drain.ExitOnZero, drain.IstioExitOnZero,
			map[string]string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true", "MINIMUM_DRAIN_DURATION": "5s"}, nil},
		"per-pod-nested-stats-matcher.yaml": {drain.ExitOnZero, drain.IstioExitOnZero,
			map[string]string{"proxyStatsMatcher.inclusionRegexps": `[".*downstream_cx_active"]`, "MINIMUM_DRAIN_DURATION": "5s"},
			[]string{"proxyMetadata.proxyStatsMatcher (annotation proxy.istio.io/config, line 4): belongs next to proxyMetadata"}},
		"per-pod-termination-drain.yaml": {drain.ExitOnZero, drain.Fixed,
			map[string]string{"terminationDrainDuration": "30s"},
			[]string{"terminationDrainDuration (annotation proxy.istio.io/config, line 1): not used"}},
		"prestop-netstat.yaml": {drain.ExitOnZero, drain.Fixed, nil, nil}, // has no proxy configuration at all
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
			if err != nil {
				t.Fatal(err)
			}
			if s.Mode() != want.mode {
				t.Errorf("mode %v, want %v", s.Mode(), want.mode)
			}
			for setting, wanted := range want.settings {
				if value, source := printed(t, s, setting); value != wanted {
					t.Errorf("%s is %s (%s), want %s", setting, value, source, wanted)
				}
			}
			var text bytes.Buffer
			if err := s.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", text.Bytes())
			got := make([]string, 0, len(s.Warnings))
			for _, w := range s.Warnings {
				got = append(got, w.String())
			}
			if !slices.EqualFunc(got, want.warnings, strings.Contains) {
				t.Errorf("warnings\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want.warnings, "\n  "))
			}
			in.compat = CompatIstio
			s, err = Resolve(in.input())
			if err != nil {
				t.Fatal(err)
			}
			if s.Mode() != want.istio {
				t.Errorf("mode with --compat istio %v, want %v", s.Mode(), want.istio)
			}
		})
	}
}

// guide takes what the proxy would see of a manifest: an IstioOperator is the
// mesh config file, a workload has its annotation.
func guide(t *testing.T, file string) places {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	manifest, _, err := parseTree(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if manifest["kind"] == "IstioOperator" {
		return places{mesh: string(text)}
	}
	var p places
	at := manifest
	for _, key := range []string{"spec", "template", "metadata", "annotations"} {
		at, _ = at[key].(tree)
	}
	p.annotation, _ = at[annotationConfig].(string)
	return p
}
