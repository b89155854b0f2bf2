package gateway

import (
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxHead (bytes) and maxFields limit the head of requests and responses: Envoy's max_request_headers_kb and
// max_headers_count.
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

// claims are the fields in which a proxy describes its client. An app may trust them, so the gateway removes those of the
// client; it appends to X-Forwarded-For and replaces X-Forwarded-Proto.
var claims = []string{"Forwarded", "X-Real-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip"}

// isClaim reports whether a field states where a request comes from or how it was forwarded. Apps behind CGI and WSGI do
// not distinguish an underscore from a hyphen.
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

// isProxyField reports whether the field is Proxy, which CGI passes on as HTTP_PROXY (CVE-2016-5385). No client needs it.
func isProxyField(name string) bool { return name == "Proxy" }

// cleanRequest removes the fields that a client must not set. If trusted is set, the client is a proxy, and its claims stay.
func cleanRequest(h http.Header, trusted bool) {
	for name := range h {
		if isProxyField(name) || !trusted && isClaim(name) {
			delete(h, name)
		}
	}
}

// badTrailers are fields that are useless or dangerous as trailers (RFC 9110, 6.5.1), in addition to those in httpguts:
// authentication and response controls.
var badTrailers = []string{
	"Age", "Cookie", "Date", "Expires", "Location", "Proxy", "Retry-After", "Set-Cookie", "Upgrade", "Vary", "Warning",
	"X-Forwarded-For", "X-Forwarded-Proto",
}

// allowedTrailer reports whether a field may be passed on as a trailer.
func allowedTrailer(name string) bool {
	return httpguts.ValidTrailerHeader(name) && !slices.Contains(badTrailers, name) && !isClaim(name)
}

// copyTrailers copies the trailers that are allowed.
func copyTrailers(to, from http.Header) {
	for name, values := range from {
		if allowedTrailer(name) {
			to[name] = values
		}
	}
}

// dropTrailers removes the trailers that are not allowed.
func dropTrailers(h http.Header) {
	for name := range h {
		if !allowedTrailer(name) {
			delete(h, name)
		}
	}
}

// authority returns the host that a request is for. An HTTP/1.0 request without one is for the address that the client
// has connected to (RFC 9112, 3.3).
func authority(r *http.Request) string {
	if r.Host != "" || r.ProtoAtLeast(1, 1) {
		return r.Host
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return addr.String()
	}
	return ""
}
