// Package process starts, ends and reaps the processes of a container.
//
// At any point in time each child has exactly one waiter: its own. All other processes that die below a PID 1 (orphans
// of the app, of hooks) are reaped by Reap, which ignores children with a waiter.
package process
