package gateway

import (
	"bytes"
	"crypto/tls"
	"strings"
	"sync/atomic"

	"github.com/lastcall-dev/lastcall/internal/certificate"
)

// Certificates is what is shown to clients, by the name that they ask for (SNI). It may be
// changed at any time: the next handshake gets what is new, connections go on.
type Certificates struct {
	set atomic.Pointer[certificateSet]
}

type certificateSet struct {
	byHost   map[string]*tls.Certificate // "*.example.com" for one label
	fallback Fallback
}

// Fallback gives the certificate for names that none is for.
type Fallback func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Set replaces all. byHost has names in lower case, wildcards as *.example.com; fallback
// is for all other names, and may be nil: such handshakes are refused then
// (unrecognized_name).
func (c *Certificates) Set(byHost map[string]*tls.Certificate, fallback Fallback) {
	c.set.Store(&certificateSet{byHost, fallback})
}

// Get is for tls.Config.GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := c.set.Load()
	if s == nil {
		return nil, nil // crypto/tls says unrecognized_name
	}
	if cert := s.of(hello.ServerName); cert != nil {
		return cert, nil
	}
	if s.fallback == nil {
		return nil, nil
	}
	return s.fallback(hello)
}

// of is the certificate for host; nil when it is the fallback's.
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

// misdirected reports that a client that has asked for serverName asks on the same connection for a host that
// another certificate is for, and that the certificate of the connection does not name (RFC 9110, 7.4 and 15.5.20). A
// client without SNI has not said which host it expects.
func (c *Certificates) misdirected(serverName, host string) bool {
	if c == nil || serverName == "" || hostname(serverName) == hostname(host) {
		return false
	}
	s := c.set.Load()
	if s == nil {
		return false
	}
	shown, due := s.of(serverName), s.of(host)
	if shown == due || shown != nil && due != nil && bytes.Equal(shown.Certificate[0], due.Certificate[0]) {
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
