package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A module whose one test fails every other time, and whose other one never does.
const sometimes = `package sometimes

import (
	"os"
	"testing"
)

func TestSteady(*testing.T) {}

func TestSometimes(t *testing.T) {
	if os.Remove("again") == nil {
		return
	}
	if err := os.WriteFile("again", nil, 0o600); err != nil {
		panic(err)
	}
	t.Error("for the first time")
}
`

func TestFlaky(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/sometimes\n\ngo 1.26\n", "some_test.go": sometimes, "crash/crash_test.go": `package crash

import "os"

func init() { os.Exit(3) }
`, "none/none.go": "package none\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	o, err := parseFlaky([]string{"-times", "4", "-load", "1"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	stable, err := flaky(t.Context(), o, &out)
	if err != nil || stable {
		t.Errorf("stable: %v, error %v", stable, err)
	}
	for _, want := range []string{
		"FAIL: example.com/sometimes TestSometimes: 2 of 4 times at load 0",
		"FAIL: example.com/sometimes TestSometimes: 2 of 4 times at load 1",
		"for the first time",
		"FAIL: example.com/sometimes/crash (the package): 4 of 4 times at load 1",
		"4 tests have failed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "TestSteady") {
		t.Errorf("a test that passes is named:\n%s", out.String())
	}
	for _, wrong := range []string{"-times=0", "-load=-1", "-timeout=0"} {
		if _, err := parseFlaky([]string{wrong}); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}
