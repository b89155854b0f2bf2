package hotrestart

import (
	"os"
	"strings"
	"syscall"
)

// sentinel begins the name of the variable by which tableflip tells a successor
// that it is one.
const sentinel = "TABLEFLIP_HAS_PARENT_"

func isSuccessor() bool {
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, sentinel) {
			return true
		}
	}
	return false
}

// forgetPredecessor keeps the variable from our children: an app that uses
// tableflip itself would look for our descriptors in its own.
func forgetPredecessor() {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, sentinel) {
			_ = os.Unsetenv(name)
		}
	}
}

// keepFromChildren marks the two pipes between successor and predecessor, which
// tableflip leaves open for every program that we start.
func keepFromChildren() {
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
}
