package sideport

import (
	"fmt"
	"slices"
	"testing"
)

// An address that takes all slots displaces its own.
func TestSlots(t *testing.T) {
	c := NewSlots(4)
	var ended []string
	take := func(peer string) *Slot {
		return c.Take(peer, 1, func() { ended = append(ended, peer) })
	}
	kubelet := take("10.0.0.1:1")
	for port := range 5 {
		take(fmt.Sprintf("10.0.0.66:%d", port))
	}
	if want := []string{"10.0.0.66:0", "10.0.0.66:1"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q, want %q", ended, want)
	}
	kubelet.Release()
	kubelet.Release()
	if n := len(ended); take("10.0.0.2:1") == nil || len(ended) != n {
		t.Errorf("%q is ended although a slot was free", ended[n:])
	}
}

// With keepFirst the first of an address and the latest stay.
func TestSlotsKeepFirst(t *testing.T) {
	c := NewSlots(3)
	c.keepFirst = true
	var ended []string
	for port := range 6 {
		peer := fmt.Sprintf("10.0.0.66:%d", port)
		c.Take(peer, 1, func() { ended = append(ended, peer) })
	}
	if want := []string{"10.0.0.66:1", "10.0.0.66:2", "10.0.0.66:3"}; !slices.Equal(ended, want) || c.n != 3 {
		t.Errorf("ended %q, want %q; %d slots are taken", ended, want, c.n)
	}
}

// However much addresses have taken, the next one gets its part, from the one with the most. One that alone wants more
// than there is gets nothing.
func TestSlotsOfBytes(t *testing.T) {
	c := NewSlots(100)
	var ended []string
	take := func(peer string, n int) *Slot {
		return c.Take(peer, n, func() { ended = append(ended, peer) })
	}
	large := take("10.0.0.66:1", 10)
	if !large.Grow(60) || !take("10.0.0.66:2", 25).Grow(0) || len(ended) > 0 {
		t.Errorf("ended %q although there was enough", ended)
	}
	if quiet := take("10.0.0.1:1", 10); !quiet.Grow(20) || large.Grow(0) || !slices.Equal(ended, []string{"10.0.0.66:1"}) {
		t.Errorf("ended %q, want the oldest of the other address", ended)
	}
	if take("10.0.0.2:1", 200).Grow(0) {
		t.Error("an address got more than there is")
	}
	for _, one := range c.taken {
		for len(one.slots) > 0 {
			one.slots[0].Release()
		}
	}
	if c.n != 0 || len(c.taken) != 0 {
		t.Errorf("%d are taken by %d addresses after their release", c.n, len(c.taken))
	}
}
