package gateway

import (
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// h2cError is what an error of a request over HTTP/2 means for the request.
type h2cError int

const (
	// terminated: the connection has ended. The endpoint may have processed the request.
	terminated h2cError = iota

	// neverBegun: the connection was used up after a stream had been reserved. Nothing was sent.
	neverBegun

	// beyondGoAway: the stream is beyond the last one that a GOAWAY names. The endpoint has not processed the
	// request, which may be repeated, whatever its method (RFC 9113, 8.7).
	beyondGoAway

	// refusedStream: the endpoint has sent RST_STREAM with REFUSED_STREAM, which means the same.
	refusedStream

	// resetStream: the endpoint has sent RST_STREAM with another code.
	resetStream

	// malformed: the endpoint has sent something that is not HTTP/2, such as HTTP/1.1's answer to the preface.
	malformed
)

// The texts of net/http's errors that have no exported type or value. golang/go#53896 made StreamError visible
// to errors.As; golang/go#74578 proposes the same for GOAWAY. TestH2CErrors fails when Go changes a text.
const (
	textNeverBegun      = "http2: client conn not usable"
	textBeyondGoAway    = "http2: Transport received Server's graceful shutdown GOAWAY"
	textFromPeer        = "received from peer" // of StreamError.Cause
	textConnectionError = "connection error: "
	textFrameTooLarge   = "frame too large"
	textHTTP1           = "frame header looked like an HTTP/1.1 header"
)

// h2cErrorOf classifies an error of http.ClientConn.
func h2cErrorOf(err error) h2cError {
	var stream http2.StreamError
	if errors.As(err, &stream) {
		switch {
		case stream.Cause == nil || stream.Cause.Error() != textFromPeer: // our RST_STREAM, for a malformed response
			return malformed
		case stream.Code == http2.ErrCodeRefusedStream:
			return refusedStream
		}
		return resetStream
	}
	switch text := err.Error(); {
	case text == textNeverBegun:
		return neverBegun
	case text == textBeyondGoAway:
		return beyondGoAway
	case strings.HasPrefix(text, textConnectionError), strings.Contains(text, textFrameTooLarge), strings.Contains(text, textHTTP1):
		return malformed
	}
	return terminated
}

// isUnprocessed reports whether the endpoint has not processed the request.
func (e h2cError) isUnprocessed() bool {
	return e == neverBegun || e == beyondGoAway || e == refusedStream
}

// outcome returns Envoy's reason and flag for the error, and the status of the reply.
func (e h2cError) outcome() (reason, flag string, status int) {
	switch e {
	case malformed:
		return accesslog.ReasonProtocolError, accesslog.FlagProtocolError, http.StatusBadGateway
	case refusedStream:
		return accesslog.ReasonRefused, accesslog.FlagUpstreamReset, http.StatusServiceUnavailable
	case resetStream:
		return accesslog.ReasonReset, accesslog.FlagUpstreamReset, http.StatusServiceUnavailable
	}
	return accesslog.ReasonTerminated, accesslog.FlagTerminated, http.StatusServiceUnavailable
}
