package gateway

import (
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxHead and maxFields bound a message's head, in bytes and in fields: Envoy's max_request_headers_kb and
// max_headers_count, for responses as well.
const (
	maxHead   = 60 << 10
	maxFields = 100
)

// countFields counts field lines.
func countFields(h http.Header) int {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	return n
}

// claims are the fields by which a proxy tells an app about the client. What comes from the client itself must not
// reach an app that believes it; X-Forwarded-For is appended to and X-Forwarded-Proto replaced.
var claims = []string{"Forwarded", "X-Real-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip"}

// isClaim reports that a field says where a request comes from or how it got here. Apps behind CGI and WSGI do not tell an
// underscore from a hyphen.
func isClaim(name string) bool {
	if strings.IndexByte(name, '_') >= 0 {
		name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		if name == "X-Forwarded-For" || name == "X-Forwarded-Proto" {
			return true
		}
	}
	switch {
	case name == "X-Forwarded-For" || name == "X-Forwarded-Proto":
		return false
	case strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Envoy-"):
		return true
	}
	return slices.Contains(claims, name)
}

// isProxyField is true of Proxy, which CGI makes HTTP_PROXY of (CVE-2016-5385). No client needs it.
func isProxyField(name string) bool { return name == "Proxy" }

// cleanRequest removes from h what a client must not say to an endpoint; trusted: a proxy stands in front of the
// gateway that says it.
func cleanRequest(h http.Header, trusted bool) {
	for name := range h {
		if isProxyField(name) || !trusted && isClaim(name) {
			delete(h, name)
		}
	}
}

// badTrailers are fields that are of no use or dangerous behind the content (RFC 9110, 6.5.1), beside those that httpguts
// knows: authentication and response controls.
var badTrailers = []string{
	"Age", "Cookie", "Date", "Expires", "Location", "Proxy", "Retry-After", "Set-Cookie", "Upgrade", "Vary", "Warning",
	"X-Forwarded-For", "X-Forwarded-Proto",
}

// allowedTrailer reports that a field may be passed on as a trailer.
func allowedTrailer(name string) bool {
	return httpguts.ValidTrailerHeader(name) && !slices.Contains(badTrailers, name) && !isClaim(name)
}

// copyTrailers passes on those that are allowed.
func copyTrailers(to, from http.Header) {
	for name, values := range from {
		if allowedTrailer(name) {
			to[name] = values
		}
	}
}

// dropTrailers removes those that are not allowed.
func dropTrailers(h http.Header) {
	for name := range h {
		if !allowedTrailer(name) {
			delete(h, name)
		}
	}
}

// authority is the host that a request is for. A client of HTTP/1.0 need not say it: then it is the address that
// it has connected to (RFC 9112, 3.3).
func authority(r *http.Request) string {
	if r.Host != "" || r.ProtoAtLeast(1, 1) {
		return r.Host
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return addr.String()
	}
	return ""
}
