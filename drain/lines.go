package drain

// The lines that pilot-agent logs when it ends a proxy, word for word: users and their log queries search for them. The
// numbers are also attributes.
const (
	lineStatusServer = "Status server has successfully terminated"
	lineDraining     = "Agent draining Proxy for termination"
	lineDrainFailed  = "Error in invoking drain listeners endpoint: %v"
	lineFixedBegins  = "Graceful termination period is %v, starting..."
	lineFixedEnds    = "Graceful termination period complete, terminating remaining proxies."
	lineMinimumDrain = "Agent draining proxy for %v, then waiting for active connections to terminate..."
	lineChecking     = "Checking for active connections..."
	lineStillActive  = "There are still %d active connections"
	lineNoneActive   = "There are no more active connections. terminating proxy..."
	lineNotAvailable = "downstream_cx_active are not available. This either means there are no " +
		"downstream connection established yet or the stats are not enabled. Skipping active connections check..."
	lineLookFailed    = "unable to get listener stats from Envoy : %v"
	lineRetrying      = "Retrying (%d attempt) to obtain active connections..."
	lineGaveUp        = "Graceful termination logic ended prematurely, error while obtaining downstream_cx_active stat (Max retry %d exceeded)"
	lineDiedEarly     = "Graceful termination logic ended prematurely, envoy process terminated early"
	lineAborting      = "Aborting proxy"
	lineAbortedOK     = "Envoy aborted normally"
	lineAborted       = "Aborted proxy instance"
	lineTerminated    = "Agent has successfully terminated"
	lineHandlingDrain = "handling /drain, starting drain"
	lineHandlingQuit  = "handling /quitquitquit, notifying pilot-agent to exit"
	lineQuit          = "Agent already drained, exiting immediately"
)

// lastcall's own lines: constant messages, with the facts as attributes.
const (
	linePhase        = "drain phase"
	lineUnknown      = "data plane activity unknown; treating open connections as busy"
	lineFewActive    = "few enough busy connections are left to exit"
	lineCapReached   = "new connections still arriving at the drain cap; closing listeners"
	lineLastCall     = "last call: ending open connections"
	lineCancelled    = "no SIGTERM after preStop hook; drain cancelled"
	lineCloseFailed  = "data plane did not close in time; killing it"
	faultArrivals    = "unknown whether clients still connect: drained to the cap of the quiet time, %v"
	faultClose       = "close the data plane: %v"
	faultKill        = "data plane did not end when killed; leaving it to the exit of the process"
	lineFinishing    = "only opaque connections are open; the app ends them after its SIGTERM"
	lineSooner       = "SIGKILL comes before the end of the grace period"
	lineSecondSignal = "second termination signal; making the last call now"
)
