// Package agent runs next to an app, or around it: it starts the data plane, serves the status port, and takes both
// through their termination.
//
// The promise: the status port is open from before the first connection until the drain has ended, and the process
// never outlives its grace period.
//
// How a pod ends: Run starts everything (start). serve awaits the first request for the end and calls runTermination;
// the rest is package drain's. With its report, end stops the app and chooses the exit code, and Run's defers close the
// rest, the status port last.
//
// Files:
//
//	agent.go                      from the first request for the end to the exit code; the phase
//	options.go, start.go          the options; the start of the parts, Envoy's admin API among them
//	app.go, job.go                the app as a child process
//	outbound.go                   the app's captured outbound connections
//	restart.go, hooks.go          hooks: the end of the pod or the restart of a container; the app's containers and exit
//	status.go, phases.go          the status port; the clients that await the phase
//	probes.go                     the app's probes, redirected to the status port; Go's profiles
//	metrics.go, merge.go          the agent's metrics; the scrape that includes the app's
//	connections.go                the list of open connections
package agent
