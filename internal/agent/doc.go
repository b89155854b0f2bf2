// Package agent is what runs beside (or around) an app: it starts the data
// plane, answers on the status port, and takes the whole through its
// termination.
//
// The promise: the status port is open from before the first connection until
// the drain is over, and the process never outlives the grace period that it was
// told of.
package agent
