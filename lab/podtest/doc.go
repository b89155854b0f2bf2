// Package podtest holds tests of a whole pod in a network namespace of its own:
// capture, sidecar and an app that knows of neither.
package podtest
