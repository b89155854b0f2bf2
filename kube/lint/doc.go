// Package lint says of a pod's manifest which of its timers cannot work together when it
// is told to stop. Pod is a pure function: manifest and settings in, findings out, in
// the order of the rules. Every rule has an ID that stays, and says what happens and
// what to write instead. They are listed by
// Rules, and in docs/lint.md.
package lint
