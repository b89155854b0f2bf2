package eventstream

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Ending is how a stream can be ended at its present position.
type Ending struct {
	Last   []byte // an event to send before the end; nil: none
	Proper bool   // the body ends as if the application had ended it: the client loses nothing
	Name   string // of an ending that is not proper, for reports
}

const message = drain.MessageLastCall

// errorEvents are the formats of the error events, of the message and the next sequence number.
var errorEvents = [...]string{
	openAI: `data: {"error":{"message":%[1]q,"type":"server_error","param":null,"code":"server_shutting_down"}}` +
		"\n\n",
	openAIReplies: "event: error\n" +
		`data: {"type":"error","sequence_number":%[2]d,"code":"server_error","message":%[1]q,` +
		`"param":null,"error":{"type":"server_error","code":"server_error","message":%[1]q,"param":null}}` + "\n\n",
	anthropic: "event: error\n" + `data: {"type":"error","error":{"type":"overloaded_error","message":%[1]q}}` + "\n\n",
	gemini:    `data: {"error":{"code":503,"message":%[1]q,"status":"UNAVAILABLE"}}` + "\r\n\r\n",
	ollama: `{"error":%[1]q,"model":"","message":{"role":"assistant","content":""},"response":"","done":false}` +
		"\n",
}

// defaultRetry is the shortest reconnection time if the application has set none, milliseconds. Browsers wait 3 s.
const defaultRetry = 1000

// Ending returns how the stream can be ended now.
func (s *Stream) Ending() Ending {
	switch {
	case !s.BetweenEvents():
		return Ending{Name: drain.EndingTruncated}
	case s.complete:
		return Ending{Proper: true}
	case s.Reconnects():
		return Ending{Proper: true, Last: fmt.Appendf(nil, "retry: %d\n\n", s.retryAfter())}
	}
	if format := errorEvents[s.dialect]; format != "" {
		return Ending{Name: drain.EndingErrorEvent, Last: fmt.Appendf(nil, format, message, s.sequence+1)}
	}
	return Ending{Name: drain.EndingTruncated}
}

// Reconnects reports whether the client repeats the request by itself after any end, as EventSource does. A stream in a
// dialect has an end of its own, so its client may be another one.
func (s *Stream) Reconnects() bool { return s.isSubscription && s.dialect == unknown }

// SpreadRetries makes the reconnection time random over at least a time: where many streams end at once.
func (s *Stream) SpreadRetries(over time.Duration) { s.spread = int(over.Milliseconds()) }

// retryAfter returns the reconnection time for the last event, milliseconds: random, so that clients do not return all
// at once, and never shorter than the application's.
func (s *Stream) retryAfter() int {
	if s.retry > 0 {
		return s.retry + rand.IntN(max(s.retry/2, s.spread)+1)
	}
	return defaultRetry + rand.IntN(max(2*defaultRetry, s.spread))
}
