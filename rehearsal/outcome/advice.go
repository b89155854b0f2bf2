package outcome

import "github.com/lastcall-dev/lastcall/rehearsal/load"

// Advice is what would have saved a request that was lost for a reason, where that does not depend on the phase.
var Advice = map[load.Reason]string{
	load.NoClose: "end the stream in order at SIGTERM: the last chunk of an event stream, a close frame 1001 on a WebSocket",
	load.Short:   "the response has neither a length nor chunks, so its client takes a part for the whole: send one of them, and finish before the exit",
	load.Late:    "no complete response within --timeout: the app hangs after SIGTERM",
}

// AdviceFinish is what would have saved a request that was in flight at the app's exit.
const AdviceFinish = "the app exits with requests in flight: finish them after SIGTERM, or delay the SIGTERM until there are none, as lastcall does"
