package rehearsal

import (
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// fixedCPUWait has one delay, during the rows of good.
func fixedCPUWait(delay time.Duration) *cpuWait {
	return &cpuWait{samples: []delayed{{time.Date(2026, 11, 21, 8, 0, 5, 0, time.UTC), delay}}}
}

func TestAllowance(t *testing.T) {
	began := time.Now()
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	m := &cpuWait{samples: []delayed{
		{at(-1), 900 * time.Millisecond}, // before
		{at(1), 10 * time.Millisecond},
		{at(2), 50 * time.Millisecond},
		{at(5.1), 200 * time.Millisecond}, // began within
		{at(9), 800 * time.Millisecond},
	}}
	if got := m.worst(began, at(5)); got != 200*time.Millisecond {
		t.Errorf("worst %v, want 200ms", got)
	}
	if got, enough := m.allowance(began, at(3)); got != hops*50*time.Millisecond || !enough {
		t.Errorf("allowance %v, %v", got, enough)
	}
	if got, enough := m.allowance(began, at(10)); got != maxAllowance || enough {
		t.Errorf("allowance %v, %v; want the cap", got, enough)
	}
	if got, enough := (*cpuWait)(nil).allowance(began, at(3)); got != 0 || !enough {
		t.Errorf("without a measurement: %v, %v", got, enough)
	}
	if note := busyNote(20 * time.Millisecond); note != "" {
		t.Errorf("a quiet machine: %s", note)
	}
	if note := busyNote(maxAllowance); !strings.Contains(note, "up to 0.5 s more") {
		t.Errorf("a busy machine: %s", note)
	}
}

// Busy loops are measured.
func TestCPUWait(t *testing.T) {
	for range 12 * runtime.NumCPU() {
		hog := exec.Command("timeout", "60", "sh", "-c", "while :; do :; done")
		must.Do(t, hog.Start())
		t.Cleanup(func() {
			_ = hog.Process.Signal(syscall.SIGTERM) // timeout passes it on
			_ = hog.Wait()
		})
	}
	began := time.Now()
	m := startCPUWait()
	defer m.end()
	polltest.Eventually(t, "a delay of 20 ms next to 12 busy loops for each processor", func() bool {
		return m.worst(began, time.Now()) >= 20*time.Millisecond
	})
}
