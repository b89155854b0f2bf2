package traffic

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Each list gets each change after its own delay, and is right in the end, whatever the order.
func TestEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists [][]string
		began := time.Now()
		e := NewEndpoints(4*time.Second, []string{"a", "b"}, func(l []string) { lists = append(lists, l) })
		for range 20 {
			e.Add(t.Context(), "c")
			e.Remove(t.Context(), "c") // its removal may arrive first
		}
		e.Add(t.Context(), "d")
		e.Remove(t.Context(), "a")
		e.Wait()
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		last := lists[len(lists)-1]
		slices.Sort(last)
		if !slices.Equal(last, []string{"b", "d"}) {
			t.Errorf("at last %v", last)
		}
	})
}
