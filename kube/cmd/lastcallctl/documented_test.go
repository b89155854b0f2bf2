package main

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/cli/clitest"
)

func TestDocumentedCommands(t *testing.T) { clitest.Documented(t, root(), "../../..") }
