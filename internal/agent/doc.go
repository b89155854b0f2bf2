// Package agent runs next to an app, or around it: it starts the data plane, serves the status port, and takes both
// through their termination.
//
// The promise: the status port is open from before the first connection until the drain has ended, and the process
// never outlives its grace period.
package agent
