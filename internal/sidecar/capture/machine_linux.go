package capture

import (
	"bytes"
	"errors"
	"os"
)

// errMachine prevents that a mistake cuts a whole machine off.
var errMachine = errors.New("this is not a pod but the machine's own network namespace: all of its traffic would be captured; if intended, set --whole-machine")

// onMachine reports whether the calling thread is in the kernel's initial namespace. Process 2, whose children are the
// kernel's threads, never leaves it; a container with processes of its own does not see it.
func onMachine() bool {
	name, err := os.ReadFile("/proc/2/comm")
	if err != nil || !bytes.Equal(name, []byte("kthreadd\n")) {
		return false
	}
	first, err := os.Stat("/proc/2/ns/net")
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/thread-self/ns/net")
	return err == nil && os.SameFile(first, ours)
}
