package accesslog

import (
	"cmp"
	"strings"

	"github.com/lastcall-dev/lastcall/drain"
)

// Outcome is how a request ended: Envoy's response flags (CoreResponseFlag's short strings) and ResponseCodeDetails.
type Outcome struct{ Flags, Details string }

// Envoy's response flags.
const (
	FlagConnectFailed      = "UF"     // upstream connection failure
	FlagOverflow           = "UO"     // over a limit
	FlagResponseTimeout    = "UT"     // upstream request timeout
	FlagTerminated         = "UC"     // upstream connection termination
	FlagProtocolError      = "UPE"    // upstream protocol error
	FlagUpstreamReset      = "UR"     // upstream remote reset
	FlagNoHealthyUpstream  = "UH"     // no endpoint
	FlagRetriesExhausted   = "URX,UF" // each attempt failed to connect
	FlagDownstreamClosed   = "DC"     // downstream connection termination
	FlagDownstreamProtocol = "DPE"    // downstream protocol error
	FlagDuration           = "DT"     // ended by a time limit; here, the last call
)

// The outcomes that more than one data plane has. LastCall's details are not Envoy's, which has no such event.
var (
	ViaUpstream     = Outcome{"", "via_upstream"}
	LastCall        = Outcome{FlagDuration, "last_call"}
	ClientClosed    = Outcome{FlagDownstreamClosed, "downstream_remote_disconnect"}
	ClientReset     = Outcome{FlagDownstreamClosed, "downstream_remote_reset"} // of a stream
	ConnectFailed   = Before(FlagConnectFailed, ReasonConnectFailed)
	Overflow        = Before(FlagOverflow, ReasonOverflow)
	Terminated      = Before(FlagTerminated, ReasonTerminated)
	ProtocolError   = Before(FlagProtocolError, ReasonProtocolError)
	StreamReset     = Before(FlagUpstreamReset, ReasonReset)
	StreamRefused   = Before(FlagUpstreamReset, ReasonRefused)
	ResponseTimeout = Outcome{FlagResponseTimeout, "response_timeout"}
	InvalidHTTP1    = Outcome{FlagDownstreamProtocol, "http1.codec_error"}
	InvalidHTTP2    = Outcome{FlagDownstreamProtocol, "http2.codec_error"}
	HeadersTooLarge = Outcome{FlagDownstreamProtocol, "http1.headers_too_large"}
	TooManyHeaders  = Outcome{FlagDownstreamProtocol, "http1.too_many_headers"}
	HeadTimeout     = Outcome{"", "request_header_timeout"}
	RequestTimeout  = Outcome{"", "request_overall_timeout"}
	NoHealthy       = Outcome{FlagNoHealthyUpstream, "no_healthy_upstream"}
	// Truncated has Envoy's name for a response that ends too early.
	Truncated = Outcome{FlagProtocolError, "upstream_reset_after_response_started{protocol_error}"}
)

// Envoy's reasons for the end of an upstream connection or stream.
const (
	ReasonConnectFailed = "remote connection failure"
	ReasonOverflow      = "overflow"
	ReasonTerminated    = "connection termination"
	ReasonProtocolError = "protocol error"
	ReasonReset         = "remote reset"
	ReasonRefused       = "remote refused stream reset"
)

// Before is the outcome of an upstream's reset before its response has begun.
func Before(flags, reason string) Outcome {
	return Outcome{flags, "upstream_reset_before_response_started{" + strings.ReplaceAll(reason, " ", "_") + "}"}
}

// ResetBody is the body of Envoy's local reply to a reset before the response; retried if attempts preceded it.
func ResetBody(reason string, retried bool) string {
	const body = "upstream connect error or disconnect/reset before headers. "
	if retried {
		return body + "retried and the latest reset reason: " + reason
	}
	return body + "reset reason: " + reason
}

// Bodies of local replies.
const (
	BodyResponseTimeout = "upstream request timeout" // 504
	BodyNoHealthy       = "no healthy upstream"      // 503

	// BodyLastCall is not Envoy's: a request that the last call ends has no response yet.
	BodyLastCall = drain.BodyLastCall
)

// Server is the Server header of local replies, by which users distinguish lastcall's 503 from the app's, and from that
// of an Envoy.
const Server = "lastcall"

// Reply is a local reply in place of the app's response, with Envoy's fields, as users' tools and dashboards expect
// them.
type Reply struct {
	Status      int
	Body        string
	RetryAfter  string // seconds; empty: none
	GRPCMessage string // empty: Body
}

// Message is the grpc-message.
func (r *Reply) Message() string { return cmp.Or(r.GRPCMessage, r.Body) }
