//go:build !linux

package rehearse

// Manifest does nothing: a rehearsal on this machine needs Linux.
func Manifest() {}
