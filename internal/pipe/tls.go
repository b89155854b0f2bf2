package pipe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/certificate"
	"github.com/lastcall-dev/lastcall/internal/tcp"
)

// TLS says how a listener ends its clients' TLS. The zero value of a field that
// is optional is its default.
type TLS struct {
	Cert, Key string // PEM files: a certificate with its chain, and its key

	// ClientCA is a PEM file of authorities: each client must show a certificate
	// of one of them. Empty: none is asked for.
	ClientCA string

	// ALPN are the protocols on offer, "h2" and "http/1.1", the preferred first.
	// Bytes go through unchanged: a client with which h2 is agreed speaks HTTP/2
	// to the app, which must take it without TLS (prior knowledge). nil is
	// http/1.1 alone, and nothing on a listener of TCP.
	ALPN []string

	MinVersion uint16 // tls.VersionTLS12 (the default) or tls.VersionTLS13
}

// protocolsALPN are what can be offered.
var protocolsALPN = []string{"h2", "http/1.1"}

// ParseALPN reads protocols joined by a plus, "h2+http/1.1".
func ParseALPN(s string) ([]string, error) {
	list := strings.Split(s, "+")
	for i, p := range list {
		if !slices.Contains(protocolsALPN, p) || slices.Contains(list[:i], p) {
			return nil, fmt.Errorf("tls-alpn %q: accepted are h2, http/1.1 and both of them joined by +, the preferred first", s)
		}
	}
	return list, nil
}

// ParseTLSVersion reads "1.2" or "1.3".
func ParseTLSVersion(s string) (uint16, error) {
	switch s {
	case "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("tls-min-version %q: accepted are 1.2 and 1.3", s)
}

// check refuses half a configuration.
func (t *TLS) check() error {
	if t.Cert == "" || t.Key == "" {
		return errors.New("tls-cert and tls-key go together, and the other tls- options with them")
	}
	return nil
}

// parseTLS reads one option of an inbound.
func (in *Inbound) parseTLS(name, value string) (err error) {
	t := in.TLS
	if t == nil {
		t = new(TLS)
	}
	switch name {
	case "tls-cert":
		t.Cert = value
	case "tls-key":
		t.Key = value
	case "tls-client-ca":
		if t.ClientCA = value; value == "" {
			err = errors.New("tls-client-ca names no file: clients would need no certificate")
		}
	case "tls-alpn":
		t.ALPN, err = ParseALPN(value)
	case "tls-min-version":
		t.MinVersion, err = ParseTLSVersion(value)
	default:
		return fmt.Errorf("unknown option %q", name)
	}
	in.TLS = t
	return err
}

// termination is the TLS of a listener.
type termination struct {
	config  *tls.Config
	files   *certificate.Files
	timeout time.Duration

	shaken   [2]atomic.Uint64 // handshakes: full, resumed
	failures [failures]atomic.Uint64
	reloads  [2]atomic.Uint64 // readings of the files: good, bad
}

// newTermination reads the certificate: without one there is nothing to serve.
func newTermination(in *Inbound, timeout time.Duration, log *slog.Logger) (*termination, error) {
	if err := in.TLS.check(); err != nil {
		return nil, err
	}
	t := &termination{
		files:   &certificate.Files{Cert: in.TLS.Cert, Key: in.TLS.Key, ClientCA: in.TLS.ClientCA, Log: log},
		timeout: timeout,
	}
	if err := t.files.Load(); err != nil {
		return nil, err
	}
	if err := certificate.Valid(t.files.Leaf()); err != nil {
		log.Warn("the certificate is not valid; it serves, since there is no other", "listener", in.Listen, "file", in.TLS.Cert, "error", err)
	}
	t.config = &tls.Config{
		GetCertificate: t.files.Certificate,
		MinVersion:     max(in.TLS.MinVersion, tls.VersionTLS12),
		CipherSuites:   certificate.Suites(),
		NextProtos:     in.TLS.ALPN,
		// Records as large as may be: small ones at the beginning cost a system
		// call each, and most answers fit one large one.
		DynamicRecordSizingDisabled: true,
	}
	if t.config.NextProtos == nil && in.Protocol != TCP {
		t.config.NextProtos = []string{"http/1.1"}
	}
	if in.TLS.ClientCA != "" {
		t.config.ClientAuth = tls.RequireAndVerifyClientCert
		base := t.config
		t.config = base.Clone()
		// Asked at each handshake, so that new authorities hold for new connections.
		// The keys of session tickets stay those of the outer configuration.
		t.config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := base.Clone()
			c.ClientCAs = t.files.ClientCAs()
			return c, nil
		}
	}
	return t, nil
}

// follow reads the files anew when they change, until ctx ends.
func (t *termination) follow(ctx context.Context) { _ = t.files.Run(ctx, t.seen) }

func (t *termination) seen(err error) {
	i := 0
	if err != nil {
		i = 1
	}
	t.reloads[i].Add(1)
}

// ReloadCertificates reads the certificates of all listeners now. What cannot be
// read leaves what is in force, and is told in the log.
func (p *Pipe) ReloadCertificates() {
	for _, l := range p.listeners {
		if l.tls != nil {
			l.tls.seen(l.tls.files.Reload())
		}
	}
}

func (t *termination) count(info *tcp.TLSInfo) {
	i := 0
	if info.Resumed {
		i = 1
	}
	t.shaken[i].Add(1)
}
