package gateway

import (
	"bytes"
	"crypto/tls"
	"strings"
	"sync/atomic"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
)

// Certificates selects the certificate of a TLS handshake by the server name (SNI). It may be changed at any time: later
// handshakes use the new certificates, open connections continue.
type Certificates struct {
	set atomic.Pointer[certificateSet]
}

type certificateSet struct {
	byHost   map[string]*tls.Certificate // "*.example.com" for one label
	fallback Fallback
}

// Fallback returns the certificate for names without one.
type Fallback func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Set replaces all certificates. byHost has names in lower case, wildcards as *.example.com. fallback is for all other
// names; if it is nil, such handshakes are refused (unrecognized_name).
func (c *Certificates) Set(byHost map[string]*tls.Certificate, fallback Fallback) {
	c.set.Store(&certificateSet{byHost, fallback})
}

// Get implements tls.Config.GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := c.set.Load()
	if s == nil {
		return nil, nil // crypto/tls refuses with unrecognized_name
	}
	if cert := s.of(hello.ServerName); cert != nil {
		return cert, nil
	}
	if s.fallback == nil {
		return nil, nil
	}
	return s.fallback(hello)
}

// of returns the certificate for host, nil if only the fallback has one.
func (s *certificateSet) of(host string) *tls.Certificate {
	name := hostname(host)
	if cert := s.byHost[name]; cert != nil {
		return cert
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		return s.byHost["*"+name[i:]]
	}
	return nil
}

// misdirected reports whether a request for host came on a connection for serverName although host has another
// certificate and the connection's certificate does not name it (RFC 9110, 7.4 and 15.5.20). A client without SNI has
// not stated which host it expects.
func (c *Certificates) misdirected(serverName, host string) bool {
	if c == nil || serverName == "" || hostname(serverName) == hostname(host) {
		return false
	}
	s := c.set.Load()
	if s == nil {
		return false
	}
	shown, wanted := s.of(serverName), s.of(host)
	if shown == wanted || shown != nil && wanted != nil && bytes.Equal(shown.Certificate[0], wanted.Certificate[0]) {
		return false
	}
	if shown == nil && s.fallback != nil {
		shown, _ = s.fallback(&tls.ClientHelloInfo{ServerName: serverName})
	}
	return shown == nil || shown.Leaf == nil || shown.Leaf.VerifyHostname(hostname(host)) != nil
}

func (c *Certificates) config() *tls.Config {
	return &tls.Config{GetCertificate: c.Get, MinVersion: tls.VersionTLS12, CipherSuites: certificate.Suites()}
}
