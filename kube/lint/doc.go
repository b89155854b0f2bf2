// Package lint finds timers in a pod's manifest that cannot work together when the pod stops. Pod is a pure function:
// manifest and settings in, findings out, in the order of the rules. Every rule has an ID that never changes, and
// describes the consequence and the remedy. Rules and docs/lint.md list them.
package lint
