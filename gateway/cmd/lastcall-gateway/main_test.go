package main

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, map[string]func(){"lastcall-gateway": main}) }

func TestScripts(t *testing.T) { programtest.Scripts(t) }
