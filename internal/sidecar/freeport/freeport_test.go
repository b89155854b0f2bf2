package freeport

import (
	"context"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// A port is outside of the range for outgoing connections, has no listener at another address, and is not returned twice.
func TestReserve(t *testing.T) {
	low, high := ephemeral()
	given := make(map[int]bool)
	var starting sync.WaitGroup
	defer starting.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 4 { // a program has the test's descriptors until its exec
		starting.Go(func() {
			for ctx.Err() == nil {
				_ = exec.Command("true").Run()
			}
		})
	}
	for range 1000 {
		port, release, err := Reserve("127.0.0.1")
		must.Do(t, err)
		defer release()
		if port < lowest || low <= port && port <= high || given[port] {
			t.Fatalf("port %d is in the range from %d to %d, below %d, or was returned before", port, low, high, lowest)
		}
		given[port] = true
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		must.Do(t, err)
		must.Do(t, ln.Close())
	}
	if _, _, err := Reserve("192.0.2.1"); err == nil {
		t.Error("the machine has no such address")
	}
}

// A reservation lasts until release, although its caller has kept nothing of it.
func TestReservationLasts(t *testing.T) {
	again := func(port int) error {
		ln, err := net.Listen("unix", "@lastcall-port-"+strconv.Itoa(port))
		if err == nil {
			_ = ln.Close()
		}
		return err
	}
	lasting, _, err := Reserve("127.0.0.1")
	must.Do(t, err)
	ended, release, err := Reserve("127.0.0.1")
	must.Do(t, err)
	release()
	must.Do(t, again(ended)) // before another process reserves it
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // for the finalizers
	}
	if again(lasting) == nil {
		t.Error("the garbage collector has ended a reservation")
	}
}
