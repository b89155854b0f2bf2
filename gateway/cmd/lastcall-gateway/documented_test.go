package main

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli/clitest"
)

func TestDocumentedCommands(t *testing.T) { clitest.Documented(t, command(), "../../..") }
