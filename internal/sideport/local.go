package sideport

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Local refuses requests that a web page has made: on the machine of a user who looks at
// it (or through a port that is forwarded to it) these come from localhost, too.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Foreign(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Foreign is why a request is taken for a web page's: another origin's, or one that
// has the browser look up a name of its own that leads here (DNS rebinding). It is
// nil for other clients, which send no Origin and no Sec-Fetch-Site, and for pages
// that came from here.
func Foreign(r *http.Request) error {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return errors.New("a request of another site's page is refused (Sec-Fetch-Site)")
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || u.Host != r.Host {
			return fmt.Errorf("a request of another site's page is refused (Origin %.100q)", origin)
		}
	}
	if !isLocalName(r.Host) {
		return fmt.Errorf("a request for the host %.100q is refused: ask for localhost or an IP address", r.Host)
	}
	return nil
}

// isLocalName says whether a Host is one that no foreign name server can point here:
// an IP address, localhost, or none (HTTP/1.0).
func isLocalName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// IsLoopback says whether a request came in at an address of the machine itself that
// no other machine reaches.
func IsLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
