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

// AdviceLingers is what would have saved a request on a connection that the app kept until SIGKILL, although there was time
// to finish it.
const AdviceLingers = "the app serves its kept connections until SIGKILL: after SIGTERM, send Connection: close with each " +
	"response, close connections without a request, and exit"

// AdviceKept is what would have saved a request on a connection that its client had kept and that ended before SIGTERM: by
// the app's own idle timeout, or because the hook ends at a moment without requests.
const AdviceKept = "the client sent it on a connection that it had kept, just as that one was being closed: no hook can " +
	"announce this to clients. Let the app send Connection: close, or use lastcall's sidecar, which does"
