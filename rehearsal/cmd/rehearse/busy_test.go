//go:build busy

package main

import (
	"encoding/json"
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
	out, err := exec.Command("rehearse", "-o", "json", "--lastcall", "../../../bin/lastcall").Output()
	var result struct {
		AllowanceMS float64 `json:"allowance_ms"`
		Rows        []struct {
			Strategy string
			OK       bool
			Unjudged bool `json:"not_judged"`
			Checks   []struct {
				What, Want, Got string
				OK              bool
			}
		}
	}
	if jsonErr := json.Unmarshal(out, &result); jsonErr != nil {
		t.Fatalf("%v: %v", err, jsonErr)
	}
	for _, row := range result.Rows {
		if row.Unjudged {
			t.Logf("%s: not judged", row.Strategy)
			continue
		}
		for _, c := range row.Checks {
			if !c.OK {
				t.Errorf("%s: %s: expected %s, got %s", row.Strategy, c.What, c.Want, c.Got)
			}
		}
	}
	if n := len(result.Rows); n != 14 {
		t.Errorf("%d rows, want 14", n)
	}
	t.Logf("allowance: %v ms", result.AllowanceMS)
}
