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

// Local refuses requests from web pages: on the machine of a user with a browser, or through a forwarded port, these
// come from localhost too.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Foreign(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Foreign is the reason why a request counts as a web page's: it has another origin, or its host name was resolved to
// this address by a foreign name server (DNS rebinding). It is nil for other clients, which send neither Origin nor
// Sec-Fetch-Site, and for pages of this server.
func Foreign(r *http.Request) error {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return errors.New("request from another site's page refused (Sec-Fetch-Site)")
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || u.Host != r.Host {
			return fmt.Errorf("request from another site's page refused (Origin %.100q)", origin)
		}
	}
	if !isLocalName(r.Host) {
		return fmt.Errorf("request for host %.100q refused: must be localhost or an IP address", r.Host)
	}
	return nil
}

// isLocalName reports whether a Host cannot have been resolved to this address by a foreign name server: an IP address,
// localhost, or none (HTTP/1.0).
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

// IsLoopback reports whether a request arrived at a loopback address, which no other machine can reach.
func IsLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
