package programtest

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Main runs the tests of m, in which the given functions are the programs of their names.
func Main(m testscript.TestingM, programs map[string]func()) {
	// The race detector would hold each process for a second at its end.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	testscript.Main(m, programs)
}

// Scripts runs the scripts in testdata/script.
func Scripts(t *testing.T) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}
