package pipe

import (
	"cmp"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

type event uint8

const (
	noEvent           event = iota // it has not ended
	onIdle                         // it has been idle for long enough
	onAnswered                     // its last response is complete
	onLastCall                     // of the drain
	onKill                         // of the pipe
	onResponseTimeout              // the oldest request has taken too long
	onRefused                      // the client has sent no valid request, or not in time
	onUnreachable                  // the app
	onRestarting                   // the app, which does not come back in time
	onOverLimit                    // of the listener's connections, or of the memory
	onAppClosed                    // the app has ended its connection
	onAppInvalid                   // the app has sent something that is no response
	onPollEnds                     // a long poll ends early
	onClientGone                   // the client has ended or reset its connection
	events
)

// place is where in its protocol a connection, or a stream of HTTP/2, is when the event comes.
type place uint8

const (
	atRest       place = iota // nothing is due
	atRequest                 // a request has come in part
	unanswered                // a request has no response yet
	answered                  // it has, and the client still sends it
	within                    // a response whose end the client can see
	untilClose                // a response that ends with the connection
	inWebSocket               // whose end takes more than a moment: see lastWord
	inDatabase                // a connection to one, likewise
	inTunnel                  // bytes whose meaning is unknown
	inHandshake               // of TLS
	withinStream              // of HTTP/2: a response
	withinEvents              // the same, which can be followed as events
	withinCall                // of gRPC
	places
)

// sends names the bytes that the client gets.
type sends uint8

const (
	usual         sends = iota // what the place has in usually
	sendsFIN                   // of TCP, with TLS after a close_notify
	sendsReset                 // when all before has been acknowledged: after a FIN a part would look complete
	sendsAsApp                 // what the app has sent: a FIN or a reset
	sendsReply                 // a local reply, then a FIN
	sendsTrailers              // grpc.Unavailable
	resetsStream               // INTERNAL_ERROR: Node's node:http2 regards CANCEL as an orderly end
	freesStream                // NO_ERROR (RFC 9113, 8.1)
	endsEvents                 // as the protocol of the events defines, or resetsStream
)

// usually has what the event does not say: the bytes that the client gets at a place, and its name in the report.
var usually = [places]ending{
	atRequest:    {report: drain.EndingReply},
	unanswered:   {report: drain.EndingReply},
	answered:     {sends: freesStream, report: drain.EndingAnswered},
	within:       {report: drain.EndingTruncated},
	untilClose:   {sends: sendsReset, report: drain.EndingTruncated},
	inWebSocket:  {report: drain.EndingTruncated},
	inDatabase:   {report: drain.EndingFIN},
	inTunnel:     {report: drain.EndingFIN},
	inHandshake:  {report: drain.EndingFIN},
	withinStream: {sends: resetsStream, report: drain.EndingReset},
	withinEvents: {sends: resetsStream, report: drain.EndingReset},
	withinCall:   {sends: sendsTrailers, report: drain.EndingGRPC},
}

// ending is how a connection ends by an event at a place.
type ending struct {
	sends  sends
	reply  *accesslog.Reply  // sent by sendsReply and sendsTrailers
	log    accesslog.Outcome // of the oldest request
	behind accesslog.Outcome // of the requests behind it, which get no reply
	report string            // its name, if the client loses something: that of the last call
	failed bool              // the app is why its request fails
}

// row completes the endings by an event. All that log nothing else log this.
func row(log accesslog.Outcome, at [places]ending) [places]ending {
	for i := range at {
		e := &at[i]
		e.sends, e.report = cmp.Or(e.sends, usually[i].sends, sendsFIN), usually[i].report
		e.log, e.behind = cmp.Or(e.log, log), cmp.Or(e.behind, log)
	}
	return at
}

// replies is a row of an event with a reply. The app has failed the requests if failed is true.
func replies(r *accesslog.Reply, log accesslog.Outcome, failed bool) [places]ending {
	one := ending{sends: sendsReply, reply: r, failed: failed}
	return row(log, [places]ending{atRest: one, atRequest: one, unanswered: one, within: {failed: failed},
		untilClose: {failed: failed}, withinCall: {reply: r, failed: failed}})
}

// endings is the table of endings. A connection also ends with the last response (responses.go), and by the GOAWAY of
// a drain (h2end.go). At the last call, conversations of parts get their last word first (lastcall.go). In place of
// onAppClosed a request may be sent again, on another connection to the app (rejoin.go).
var endings = [events][places]ending{
	onIdle:     row(accesslog.ClientClosed, [places]ending{}),
	onAnswered: row(accesslog.ClientClosed, [places]ending{untilClose: {sends: sendsFIN}}),
	onLastCall: row(accesslog.LastCall, [places]ending{
		atRequest:    {sends: sendsReply, reply: &replyLastCall},
		unanswered:   {sends: sendsReply, reply: &replyLastCall},
		withinEvents: {sends: endsEvents},
		withinCall:   {reply: &replyLastCall},
	}),
	onKill:            row(accesslog.ClientClosed, [places]ending{inTunnel: {sends: sendsReset}}),
	onResponseTimeout: replies(&replyResponseTimeout, accesslog.ResponseTimeout, false),
	onRefused:         replies(&replyBadRequest, accesslog.InvalidHTTP1, false),
	onUnreachable:     replies(&replyConnectFailed, accesslog.ConnectFailed, true),
	onRestarting:      replies(&replyRestarting, accesslog.ConnectFailed, true),
	onOverLimit:       replies(&replyOverflow, accesslog.Overflow, false),
	onAppClosed: row(accesslog.ClientClosed, [places]ending{
		atRest:      {sends: sendsAsApp},
		atRequest:   {sends: sendsAsApp},
		inWebSocket: {sends: sendsAsApp},
		inDatabase:  {sends: sendsAsApp},
		inTunnel:    {sends: sendsAsApp},
		unanswered:  {sends: sendsAsApp, log: accesslog.Terminated, behind: accesslog.Terminated, failed: true},
		within:      {sends: sendsAsApp, log: accesslog.Truncated, behind: accesslog.Terminated, failed: true},
		untilClose:  {log: accesslog.Truncated, behind: accesslog.Terminated, failed: true},
	}),
	onAppInvalid: row(accesslog.Terminated, [places]ending{
		unanswered: {sends: sendsReply, reply: &replyProtocolError, log: accesslog.ProtocolError, failed: true},
		within:     {log: accesslog.Truncated, failed: true},
		untilClose: {log: accesslog.Truncated, failed: true},
		withinCall: {reply: &replyProtocolError, failed: true},
	}),
	onPollEnds:   replies(&replyBadRequest, accesslog.ViaUpstream, false),
	onClientGone: row(accesslog.ClientClosed, [places]ending{inTunnel: {sends: sendsReset}}), // its FIN passes through
}

type cause struct {
	on    event
	reply *accesslog.Reply  // of onRefused and onPollEnds, in place of the table's
	log   accesslog.Outcome // of the same
}

func (why cause) at(at place) ending {
	e := endings[why.on][at]
	if why.reply != nil {
		e.log, e.behind = why.log, why.log
		if e.reply != nil {
			e.reply = why.reply
		}
	}
	return e
}

func (c *conn) placeLocked() place {
	switch {
	case c.response.begun && c.response.untilClose:
		return untilClose
	case c.response.begun:
		return within
	case c.client.IsHandshaking():
		return inHandshake
	case c.mode == opaque:
		return inTunnel
	case c.mode == modeWS:
		return inWebSocket
	case c.mode == modeDatabase:
		return inDatabase
	case c.queue.len() > 0:
		return unanswered
	case c.uploads && c.end.refusal == nil:
		return answered
	case c.arriving, c.uploads:
		return atRequest
	}
	return atRest
}

func (s *stream) place() place {
	switch {
	case s.grpc && (s.status == 0 || !s.serverEnded):
		return withinCall
	case s.status == 0:
		return unanswered
	case s.serverEnded:
		return answered
	case s.events != nil:
		return withinEvents
	}
	return withinStream
}

// The local replies.
var (
	replyConnectFailed   = accesslog.Reply{Status: 503, Body: accesslog.ResetBody(accesslog.ReasonConnectFailed, false)}
	replyOverflow        = accesslog.Reply{Status: 503, Body: accesslog.ResetBody(accesslog.ReasonOverflow, false)}
	replyResponseTimeout = accesslog.Reply{Status: 504, Body: accesslog.BodyResponseTimeout}
	replyProtocolError   = accesslog.Reply{Status: 502, Body: accesslog.ResetBody(accesslog.ReasonProtocolError, false)}
	replyBadRequest      = accesslog.Reply{Status: 400, Body: "Bad Request"}
	replyTimeout         = accesslog.Reply{Status: 408, Body: "Request Timeout"}
	replyLineTooLong     = accesslog.Reply{Status: 414, Body: "URI Too Long"}
	replyTooLarge        = accesslog.Reply{Status: 431, Body: "Request Header Fields Too Large"}
	replyNoCoding        = accesslog.Reply{Status: 501, Body: "Not Implemented"}
	replyVersion         = accesslog.Reply{Status: 505, Body: "HTTP Version Not Supported"}
	replyRestarting      = accesslog.Reply{Status: 503, Body: "the app is starting and does not serve in time",
		RetryAfter: "1"}
	replyLastCall = accesslog.Reply{Status: 503, Body: accesslog.BodyLastCall,
		GRPCMessage: grpc.Unavailable.Message}
)

// replyFor is the reply to a request head or body that is invalid.
func replyFor(err error) *accesslog.Reply {
	switch http1.StatusOf(err) {
	case http.StatusRequestHeaderFieldsTooLarge:
		return &replyTooLarge
	case http.StatusNotImplemented:
		return &replyNoCoding
	case http.StatusHTTPVersionNotSupported:
		return &replyVersion
	}
	return &replyBadRequest
}

// replyBytes is a reply in HTTP/1.1. It announces the close: the connection to the app ends too.
func replyBytes(r *accesslog.Reply, isHead bool) []byte {
	fields := "server: " + accesslog.Server + "\r\n"
	if r.RetryAfter != "" {
		fields = "retry-after: " + r.RetryAfter + "\r\n" + fields
	}
	return http1.AppendResponse(make([]byte, 0, 256+len(r.Body)), r.Status, fields, r.Body, isHead, time.Now())
}
