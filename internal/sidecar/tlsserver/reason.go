package tlsserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

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
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) {
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
