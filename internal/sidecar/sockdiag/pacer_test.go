package sockdiag

import (
	"testing"
	"time"
)

// Any number of readers take together at most a twentieth of a core, in equal parts. One whose looks are cheap, or that
// is closed, leaves its part to the others.
func TestPacer(t *testing.T) {
	const cost = 4 * time.Millisecond
	p := Pacer{Share: 20}
	all := make([]Part, 500)
	for i := range all {
		all[i].Of = &p
		if got, want := all[i].Pause(cost), time.Duration(i+1)*20*cost; got != want {
			t.Fatalf("one of %d readers waits %v; want %v", i+1, got, want)
		}
	}
	if got := all[0].Pause(cost); got != 500*20*cost {
		t.Errorf("one of 500 readers waits %v", got)
	}
	for i := range all[1:] {
		all[1+i].Pause(0)
		all[1+i].Pause(0)
	}
	if got := all[0].Pause(cost); got != 20*cost {
		t.Errorf("the last reader waits %v", got)
	}
}
