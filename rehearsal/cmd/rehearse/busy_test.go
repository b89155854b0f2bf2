//go:build busy

package main

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// TestRehearseOnABusyMachine runs the whole rehearsal next to 24 busy loops, as make flaky does (a minute).
func TestRehearseOnABusyMachine(t *testing.T) {
	for range 24 {
		hog := exec.Command("timeout", "300", "sh", "-c", "while :; do :; done")
		must.Do(t, hog.Start())
		t.Cleanup(func() {
			_ = hog.Process.Signal(syscall.SIGTERM)
			_ = hog.Wait()
		})
	}
	result, err := runRehearse((*exec.Cmd).Start, "--lastcall", "../../../bin/lastcall")
	must.Do(t, err)
	for _, row := range result.Rows {
		row.judged(t)
		t.Logf("%s: allowance %v ms", row.Strategy, row.AllowanceMS)
	}
	if n := len(result.Rows); n != 14 {
		t.Errorf("%d rows, want 14", n)
	}
}
