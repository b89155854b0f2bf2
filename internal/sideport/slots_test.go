package sideport

import (
	"fmt"
	"slices"
	"testing"
)

// An address that takes all slots displaces its own; held slots stay.
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
	hook := take("10.0.0.66:5")
	hook.hold(true)
	for port := range 3 {
		take(fmt.Sprintf("10.0.0.66:%d", 10+port))
	}
	if slices.Contains(ended, "10.0.0.66:5") || slices.Contains(ended, "10.0.0.1:1") {
		t.Errorf("ended %q, a hook or another peer among them", ended)
	}
	kubelet.release()
	kubelet.release()
	if n := len(ended); take("10.0.0.2:1") == nil || len(ended) != n {
		t.Errorf("%q is ended although a slot was free", ended[n:])
	}
}

// When all slots are held, the new one is ended.
func TestSlotsThatAreHeld(t *testing.T) {
	c := newSlots(2)
	for port := range 2 {
		c.take(fmt.Sprintf("127.0.0.1:%d", port), func() { t.Error("a held slot was ended") }).hold(true)
	}
	isEnded := false
	c.take("127.0.0.1:9", func() { isEnded = true })
	if !isEnded || c.n != 2 {
		t.Errorf("%d slots are taken", c.n)
	}
}
