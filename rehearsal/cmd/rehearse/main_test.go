package main

import (
	"flag"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "5") // they wait for time to pass, not for a core; -parallel has precedence
	programtest.Main(m, map[string]func(){"rehearse": main})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	programtest.Scripts(t)
}
