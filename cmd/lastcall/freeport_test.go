package main

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// freeLoopback is reserved until the end of the test.
func freeLoopback(t *testing.T) string { return nettest.FreeAddress(t, "127.0.0.1") }

func TestGivenPort(t *testing.T) {
	if got, _ := freePort("127.0.0.1:8080"); got != "127.0.0.1:8080" {
		t.Errorf("a given port became %s", got)
	}
}
