package capture

import (
	"bytes"
	"errors"
	"os"
)

// errMachine is Install's answer where a slip would cut a whole machine off.
var errMachine = errors.New("this is not a pod but the machine's own network namespace: all that comes in and goes out would be captured; want --whole-machine if it shall be")

// onMachine says whether the calling thread is in the namespace that the kernel has begun with. Process 2, whose children
// are the kernel's threads, never leaves it; a container with processes of its own does not see it.
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
