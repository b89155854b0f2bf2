package main

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli/clitest"
)

func TestDocumentedCommands(t *testing.T) { clitest.Documented(t, command(), "../..") }

func TestAgentBuildsItsCommandAlone(t *testing.T) {
	whole := len(command().Commands())
	for args, want := range map[string]int{"agent": 1, "run": whole, "__complete": whole, "--help": whole} {
		root := invoked([]string{args, "--inbound", ":0=127.0.0.1:1"})
		if got := len(root.Commands()); got != want {
			t.Errorf("lastcall %s builds %d commands, want %d", args, got, want)
		}
		if cmd, _, err := root.Find([]string{args}); args == "agent" && (err != nil || cmd.CommandPath() != "lastcall agent") {
			t.Errorf("lastcall agent is %v, %v", cmd, err)
		}
	}
}
