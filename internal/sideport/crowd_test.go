package sideport

import (
	"fmt"
	"slices"
	"testing"
)

// An address that takes all the room displaces its own; who waits stays.
func TestCrowd(t *testing.T) {
	c := newCrowd(4)
	var ended []string
	admit := func(peer string) *guest {
		return c.admit(peer, func() { ended = append(ended, peer) })
	}
	kubelet := admit("10.0.0.1:1")
	for port := range 5 {
		admit(fmt.Sprintf("10.0.0.66:%d", port))
	}
	if want := []string{"10.0.0.66:0", "10.0.0.66:1"}; !slices.Equal(ended, want) {
		t.Errorf("ended are %q, want %q", ended, want)
	}
	hook := admit("10.0.0.66:5")
	hook.hold(true)
	for port := range 3 {
		admit(fmt.Sprintf("10.0.0.66:%d", 10+port))
	}
	if slices.Contains(ended, "10.0.0.66:5") || slices.Contains(ended, "10.0.0.1:1") {
		t.Errorf("ended are %q, a hook or another peer among them", ended)
	}
	kubelet.leave()
	kubelet.leave()
	if n := len(ended); admit("10.0.0.2:1") == nil || len(ended) != n {
		t.Errorf("%q is ended although there was room", ended[n:])
	}
}

// When all that are there wait, the new one goes.
func TestCrowdThatWaits(t *testing.T) {
	c := newCrowd(2)
	for port := range 2 {
		c.admit(fmt.Sprintf("127.0.0.1:%d", port), func() { t.Error("one that waits was ended") }).hold(true)
	}
	isEnded := false
	c.admit("127.0.0.1:9", func() { isEnded = true })
	if !isEnded || c.n != 2 {
		t.Errorf("%d are there", c.n)
	}
}
