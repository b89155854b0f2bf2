//go:build !linux

package observe

// Node is available on Linux only, as watches are.
type Node struct{}
