package budget

import "testing"

// sleeper is a connection that does not notice anything.
type sleeper struct{}

func (sleeper) Wake() {}

func shareOf() *Share { return &Share{Owner: sleeper{}} }

// Beyond the limit the oldest is ended, of those that hold much; what is served is not.
func TestBudgetEndsTheOldest(t *testing.T) {
	b := New(1 << 20)
	quick, serving, streams := shareOf(), shareOf(), shareOf()
	if !b.Hold(quick, 8<<10, Unfinished(8<<10)) || !b.Hold(serving, 64<<10, Served) || !b.Hold(streams, 64<<10, AmongOthers) {
		t.Fatal("there is room")
	}
	var all []*Share
	for range 100 {
		c := shareOf()
		all = append(all, c)
		if !b.set(c, 64<<10, Unfinished(64<<10)) {
			t.Fatal("the newest was ended")
		}
		if held := b.held.Load(); held > b.limit {
			t.Fatalf("%d bytes are held", held)
		}
	}
	if quick.evicted.Load() || serving.evicted.Load() || streams.evicted.Load() {
		t.Error("a small one, or one that is served, was ended")
	}
	kept := 0
	for i, c := range all {
		if !c.evicted.Load() {
			kept++
		} else if kept > 0 {
			t.Errorf("number %d was ended, an older one was not", i)
		}
	}
	if want := (1<<20 - 64<<10 - 64<<10 - 8<<10) / (64 << 10); kept != want {
		t.Errorf("%d are left, want %d", kept, want)
	}
	if b.set(all[0], 128<<10, large) {
		t.Error("one that is to end holds more")
	}
	for _, c := range append(all, quick, serving, streams) {
		if !b.Hold(c, 0, Served) {
			t.Error("one that holds nothing is refused")
		}
	}
	if b.held.Load() != 0 || b.leaving.Load() != 0 || b.leavers.Load() != 0 || b.EvictOldest() {
		t.Errorf("in the end %d bytes are held, %d are leaving", b.held.Load(), b.leaving.Load())
	}
}

// One whose request becomes complete before it notices is not ended.
func TestBudgetForgives(t *testing.T) {
	b := New(100 << 10)
	c := shareOf()
	b.set(c, 64<<10, medium)
	b.set(shareOf(), 64<<10, medium)
	if !c.evicted.Load() || !b.set(c, 0, Served) || c.evicted.Load() {
		t.Error("its request is complete")
	}
	if !b.set(c, 8<<10, small) || b.held.Load() != 72<<10 {
		t.Errorf("%d bytes", b.held.Load())
	}
}
