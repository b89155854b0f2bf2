package hotrestart

import (
	"os"
	"slices"
	"strings"
	"syscall"
)

// sentinel begins the name of the variable by which tableflip marks a successor.
const sentinel = "TABLEFLIP_HAS_PARENT_"

func isSuccessor() bool {
	return slices.ContainsFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, sentinel) })
}

// forgetPredecessor keeps the variable from our children: an app that uses tableflip itself would look for our
// descriptors among its own.
func forgetPredecessor() {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, sentinel) {
			_ = os.Unsetenv(name)
		}
	}
}

// keepFromChildren marks the two pipes between successor and predecessor close-on-exec, which tableflip does not.
func keepFromChildren() {
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
}
