package sideport

import (
	"fmt"
	"slices"
	"testing"
)

// An address that takes all slots displaces its own.
func TestSlots(t *testing.T) {
	c := newSlots(4)
	var ended []string
	take := func(peer string) *slot {
		return c.take(peer, func() { ended = append(ended, peer) })
	}
	kubelet := take("10.0.0.1:1")
	for port := range 5 {
		take(fmt.Sprintf("10.0.0.66:%d", port))
	}
	if want := []string{"10.0.0.66:0", "10.0.0.66:1"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q, want %q", ended, want)
	}
	kubelet.release()
	kubelet.release()
	if n := len(ended); take("10.0.0.2:1") == nil || len(ended) != n {
		t.Errorf("%q is ended although a slot was free", ended[n:])
	}
}

// With keepFirst the first of an address and the latest stay.
func TestSlotsKeepFirst(t *testing.T) {
	c := newSlots(3)
	c.keepFirst = true
	var ended []string
	for port := range 6 {
		peer := fmt.Sprintf("10.0.0.66:%d", port)
		c.take(peer, func() { ended = append(ended, peer) })
	}
	if want := []string{"10.0.0.66:1", "10.0.0.66:2", "10.0.0.66:3"}; !slices.Equal(ended, want) || c.n != 3 {
		t.Errorf("ended %q, want %q; %d slots are taken", ended, want, c.n)
	}
}
