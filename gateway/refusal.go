package gateway

import (
	"net/http"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// Envoy's details of requests that are not forwarded.
const (
	detailsTooManyFields = "too_many_headers" // after "http1." or "http2."
	detailsNoHost        = "missing_host_header"
	detailsHosts         = "http2.violation.of.messaging.rule"
	detailsPath          = "path_normalization_failed"
	detailsMisdirected   = "misdirected_request" // not Envoy's
)

// refusal returns the reply to a request that is not forwarded, whatever its route, and whether the request is refused.
func (g *Gateway) refusal(r *http.Request) (reply, bool) {
	bad := func(status int, details string) (reply, bool) {
		return reply{status: status, body: http.StatusText(status), outcome: accesslog.Outcome{Flags: accesslog.FlagDownstreamProtocol, Details: details}}, true
	}
	hosts := r.Header["Host"] // net/http removes HTTP/1.1's
	switch {
	case countFields(r.Header) > maxFields:
		codec := "http1."
		if r.ProtoMajor == 2 {
			codec = "http2."
		}
		return bad(http.StatusRequestHeaderFieldsTooLarge, codec+detailsTooManyFields)
	case r.Host == "": // RFC 9110, 4.2.1
		return bad(http.StatusBadRequest, detailsNoHost)
	case len(hosts) > 1 || len(hosts) == 1 && hosts[0] != r.Host: // RFC 9113, 8.3.1
		return bad(http.StatusBadRequest, detailsHosts)
	case hasDotSegment(r.URL.Path):
		return bad(http.StatusBadRequest, detailsPath)
	case r.TLS != nil && g.certificates.Load().misdirected(r.TLS.ServerName, r.Host):
		return reply{status: http.StatusMisdirectedRequest, body: http.StatusText(http.StatusMisdirectedRequest), outcome: accesslog.Outcome{Details: detailsMisdirected}}, true
	}
	return reply{}, false
}

// hasDotSegment reports whether a decoded path has a segment "." or "..": an endpoint that resolves /public/../admin
// would serve a path that no route exposes. Clients resolve such paths themselves (RFC 3986, 5.2.4).
func hasDotSegment(path string) bool {
	if !strings.Contains(path, "/.") {
		return false
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
