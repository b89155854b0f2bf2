// Package process starts, ends and reaps the processes of a container.
//
// At any point in time each child has exactly one waiter: its own. What else
// dies below a PID 1 (orphans of the app, of hooks) is reaped by Reap, which
// leaves children with a waiter alone.
package process
