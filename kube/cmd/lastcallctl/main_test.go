package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, map[string]func(){"lastcallctl": main}) }

func TestScripts(t *testing.T) { programtest.Scripts(t) }

// Any answer but y or yes, and none, ends a command with exit code 1.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]int{"y\n": 0, " YES\n": 0, "n\n": 1, "\n": 1, "": 1, "yes, no\n": 1} {
		var err error
		cmd := &cobra.Command{Use: "lastcallctl", RunE: func(cmd *cobra.Command, _ []string) error {
			err = confirm(cmd.Context(), cmd, false, "Continue?")
			return err
		}}
		cmd.SetArgs([]string{})
		cmd.SetIn(strings.NewReader(answer))
		code := cli.Main(cmd, "")
		if code != want || (err != nil) != (want > 0) || err != nil && err.Error() != "no rollout: not confirmed" {
			t.Errorf("answer %q: exit code %d, error %v", answer, code, err)
		}
	}
}
