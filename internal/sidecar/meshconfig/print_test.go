package meshconfig

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func TestPrintedSettings(t *testing.T) {
	s, err := Resolve(places{
		mesh:       "defaultConfig:\n  drainDuration: 60s\n  concurrency: 2\n  proxyMetadata:\n    MINIMUM_DRAIN_DURATION: 15s\n",
		proxy:      `{"holdApplicationUntilProxyStarts": true, "proxyStatsMatcher": {"inclusionRegexps": [".*downstream_cx_active"]}}`,
		annotation: "terminationDrainDuration: 40s\nLASTCALL_QUIET_TIME: 1s\n",
		env:        []string{"TERMINATION_GRACE_PERIOD_SECONDS=16"},
		port:       16020,
	}.input())
	if err != nil {
		t.Fatal(err)
	}
	var text, js bytes.Buffer
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&js, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	js.WriteByte('\n')
	golden(t, "testdata/settings.txt", text.Bytes())
	golden(t, "testdata/settings.json", js.Bytes())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -run %s -update updates it); got\n%s", name, t.Name(), got)
	}
}
