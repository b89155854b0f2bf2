// Package tlsserver terminates the TLS of a listener, with a certificate that may be replaced meanwhile.
package tlsserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
)

// Options configure how TLS is terminated. Optional fields have defaults.
type Options struct {
	Cert, Key string // PEM files: a certificate with its chain, and its key

	// ClientCA is a PEM file of the authorities for clients' certificates. Empty: clients need none.
	ClientCA string

	// ALPN are the protocols on offer, "h2" and "http/1.1", the preferred first. Bytes are forwarded unchanged: a client
	// that agrees on h2 uses HTTP/2 with the app, which must accept it without TLS (prior knowledge). nil is http/1.1
	// alone, and nothing on a listener of TCP.
	ALPN []string

	MinVersion uint16 // tls.VersionTLS12 (the default) or tls.VersionTLS13
}

// Check reports whether the options are complete.
func (o *Options) Check() error {
	if o.Cert == "" || o.Key == "" {
		return errors.New("tls-cert and tls-key must be set together, and with every other tls- option")
	}
	return nil
}

// Server terminates the TLS of one listener.
type Server struct {
	Config  *tls.Config
	Timeout time.Duration // of a handshake

	files      *certificate.Files
	handshakes [2]atomic.Uint64 // full, resumed
	failures   [reasons]atomic.Uint64
	reloads    [2]atomic.Uint64 // succeeded, failed
}

// New reads the certificate, which must exist. ALPN offers protocols unless the options name some.
func New(o *Options, protocols []string, timeout time.Duration, listener string, log *slog.Logger) (*Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	s := &Server{
		files:   &certificate.Files{Cert: o.Cert, Key: o.Key, ClientCA: o.ClientCA, Log: log},
		Timeout: timeout,
	}
	if err := s.files.Load(); err != nil {
		return nil, err
	}
	if err := certificate.Valid(s.files.Leaf()); err != nil {
		log.Warn("serving with an invalid certificate: there is no other", "listener", listener, "file", o.Cert, "error", err)
	}
	s.Config = &tls.Config{
		GetCertificate: s.files.Certificate,
		MinVersion:     max(o.MinVersion, tls.VersionTLS12),
		CipherSuites:   certificate.Suites(),
		NextProtos:     o.ALPN,
		// Small first records cost a system call each, and most responses fit one large record.
		DynamicRecordSizingDisabled: true,
	}
	if o.ALPN == nil {
		s.Config.NextProtos = protocols
	}
	if o.ClientCA != "" {
		s.Config.ClientAuth = tls.RequireAndVerifyClientCert
		base := s.Config.Clone()
		// New authorities hold for new connections. Session ticket keys stay those of the outer configuration.
		var latest atomic.Pointer[tls.Config]
		s.Config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c, cas := latest.Load(), s.files.ClientCAs()
			if c == nil || c.ClientCAs != cas {
				c = base.Clone()
				c.ClientCAs = cas
				latest.Store(c)
			}
			return c, nil
		}
	}
	return s, nil
}

// Follow reloads the files when they change, until ctx ends.
func (s *Server) Follow(ctx context.Context) { _ = s.files.Run(ctx, s.countReload) }

// Reload reloads the files now. If it fails, the previous certificate stays in use and the log has the reason.
func (s *Server) Reload() { s.countReload(s.files.Reload()) }

func (s *Server) countReload(err error) { count(&s.reloads, err != nil) }

// Succeeded counts a handshake.
func (s *Server) Succeeded(resumed bool) { count(&s.handshakes, resumed) }

// count counts in the first or the second of two counters.
func count(counters *[2]atomic.Uint64, second bool) {
	i := 0
	if second {
		i = 1
	}
	counters[i].Add(1)
}

// Failed counts a failed handshake.
func (s *Server) Failed(r Reason) { s.failures[r].Add(1) }

// Stats are counters since the start.
type Stats struct {
	Full, Resumed  uint64    // handshakes
	Reloads        uint64    // of the certificate's files
	ReloadFailures uint64    // of them, those that have changed nothing because of an error
	NotAfter       time.Time // of the certificate in use
	failures       [reasons]uint64
}

// Failures yields each reason and how many handshakes have failed for it.
func (s *Stats) Failures(yield func(reason string, count uint64) bool) {
	for r, n := range s.failures {
		if !yield(Reason(r).String(), n) {
			return
		}
	}
}

// Stats reads the counters; nil without TLS.
func (s *Server) Stats() *Stats {
	if s == nil {
		return nil
	}
	sum := &Stats{
		Full:           s.handshakes[0].Load(),
		Resumed:        s.handshakes[1].Load(),
		ReloadFailures: s.reloads[1].Load(),
		NotAfter:       s.files.Leaf().NotAfter,
	}
	sum.Reloads = s.reloads[0].Load() + sum.ReloadFailures
	for i := range s.failures {
		sum.failures[i] = s.failures[i].Load()
	}
	return sum
}

// Reason is why a handshake has failed: a label of its metric.
type Reason uint8

// The reasons.
const (
	Other          Reason = iota
	Timeout               // the client took too long
	ClientGone            // the client has closed or reset the connection
	NotTLS                // the client does not speak TLS
	NoVersion             // no common version
	NoCipher              // no common cipher suite, curve or signature algorithm
	NoProtocol            // no common ALPN protocol
	NoCertificate         // the client has sent no certificate, and must
	BadCertificate        // the client's certificate is not signed by the CA, or has expired
	ClientAlert           // the client rejects our certificate, or has sent another alert
	Overloaded            // the memory for handshakes is used up
	reasons               // how many there are
)

var names = [reasons]string{"other", "timeout", "client_gone", "not_tls", "version", "cipher", "alpn",
	"no_client_certificate", "bad_client_certificate", "client_alert", "overloaded"}

func (r Reason) String() string { return names[r] }

// IsConfiguration reports whether the configuration of this side may be the cause.
func (r Reason) IsConfiguration() bool {
	return r == ClientAlert || r == NoCertificate || r == BadCertificate || r == NoProtocol
}

// ReasonOf classifies an error of crypto/tls, which has types for some errors and only texts for others.
func ReasonOf(err error) Reason {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return NotTLS
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return BadCertificate
	}
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return ClientGone
	case errors.As(err, &op) && op.Op == "remote error":
		return ClientAlert
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return BadCertificate
	}
	for _, known := range texts {
		if strings.Contains(err.Error(), known.text) {
			return known.reason
		}
	}
	return Other
}

// texts are those of crypto/tls; TestHandshakeFailures in internal/sidecar/pipe fails when they change.
var texts = []struct {
	text   string
	reason Reason
}{
	{"client didn't provide a certificate", NoCertificate},
	{"failed to verify certificate", BadCertificate},
	{"unsupported versions", NoVersion},
	{"no mutual cipher suite", NoCipher},
	{"no cipher suite supported", NoCipher},
	{"no supported elliptic curves", NoCipher},
	{"no ECDHE curve supported", NoCipher},
	{"no signature algorithm", NoCipher},
	{"peer doesn't support any of the certificate's signature algorithms", NoCipher},
	{"application protocol", NoProtocol},
}
