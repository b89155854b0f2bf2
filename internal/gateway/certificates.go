package gateway

import (
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
	name := hostname(hello.ServerName)
	if cert := s.byHost[name]; cert != nil {
		return cert, nil
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		if cert := s.byHost["*"+name[i:]]; cert != nil {
			return cert, nil
		}
	}
	if s.fallback == nil {
		return nil, nil
	}
	return s.fallback(hello)
}

func (c *Certificates) config() *tls.Config {
	return &tls.Config{GetCertificate: c.Get, MinVersion: tls.VersionTLS12, CipherSuites: certificate.Suites()}
}
