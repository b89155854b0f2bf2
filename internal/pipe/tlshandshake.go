package pipe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// awaitHandshake gives the client time for its handshake. While idle connections
// are ended, one that has come is busy for a moment: it was opened for a request.
// mu is held; nobody else knows the connection yet.
func (c *conn) awaitHandshakeLocked() {
	wait := c.in.tls.timeout
	if c.p.closing.holds() {
		c.arriving = true
		wait = firstRequestTime
	}
	_ = c.client.SetReadDeadline(time.Now().Add(wait))
}

// handshakeBegins makes the connection busy: who has begun a handshake has a
// request. Its time counts from here, so that it is not busy for ever.
func (c *conn) handshakeBegins() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arriving = !c.end.done()
	if !c.end.done() {
		_ = c.client.SetDeadline(time.Now().Add(c.in.tls.timeout))
	}
	c.recountLocked()
}

// handshake returns whether there is a connection to go on with.
func (c *conn) handshake() bool {
	info, silent, err := c.client.Handshake()
	if err != nil {
		c.handshakeFailed(err, silent)
		return false
	}
	c.in.tls.count(info)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hello.Store(info)
	c.growsLocked()
	if c.end.done() {
		return false // ended meanwhile: cleanUp says close_notify
	}
	_ = c.client.SetDeadline(time.Time{})
	c.arriving = false
	switch {
	case c.in.Protocol == TCP:
		c.mode = opaque
		c.noteOpaque(OpaqueTCP)
	case c.p.closing.holds():
		c.awaitFirstLocked()
	}
	c.recountLocked()
	return true
}

// handshakeFailed counts the reason and lets the alert of crypto/tls reach the client. A silent client that disconnects is
// a port probe and does not count.
func (c *conn) handshakeFailed(err error, silent bool) {
	reason := failureOf(err)
	if !c.hasEnded() && !(silent && reason == failedGone) {
		c.in.tls.failures[reason].Add(1)
		c.p.cfg.Log.Debug("a TLS handshake has failed", "listener", c.in.Listen, "from", c.client.RemoteAddr().String(), "reason", reason.String(), "error", err)
		if reason.isOurs() {
			c.p.warnEvery(time.Minute, "TLS handshakes fail; each is in the debug log and counted by reason in the metrics", "listener", c.in.Listen, "latest_from", c.client.RemoteAddr().String(), "reason", reason.String(), "error", err)
		}
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
		// As net/http says it; in clear, since the client does not speak TLS.
		_ = c.client.SetWriteDeadline(time.Now().Add(lingerTime))
		_ = c.client.SendClear((&reply{400, "the client sent an HTTP request to an HTTPS port"}).bytes(false), true)
	}
	c.endBy(&endClientGone, 0)
	if !silent { // read on, so that no reset overtakes the alert
		_, _ = io.Copy(io.Discard, c.client.TCPConn)
	}
}

// looksLikeHTTP says whether what came instead of a TLS record is a request.
func looksLikeHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}

// failure is why a handshake has failed: a label of its count.
type failure uint8

const (
	failedOther         failure = iota
	failedTimeout               // the client took too long
	failedGone                  // the client has gone
	failedNotTLS                // what came is no TLS
	failedVersion               // no version of TLS in common
	failedCipher                // no cipher suite, curve or signature in common
	failedALPN                  // no protocol in common
	failedNoCertificate         // the client has shown none, and must
	failedBadClient             // the client's certificate is not of the CA, or has expired
	failedRefused               // the client does not take our certificate, or said another alert
	failures                    // how many there are
)

var failureNames = [failures]string{"other", "timeout", "client_gone", "not_tls", "version", "cipher", "alpn", "no_client_certificate", "bad_client_certificate", "client_alert"}

func (f failure) String() string { return failureNames[f] }

// isOurs says whether somebody should look at the configuration on this side.
func (f failure) isOurs() bool {
	return f == failedRefused || f == failedNoCertificate || f == failedBadClient || f == failedALPN
}

// failureOf sorts an error of crypto/tls, which has types for some and words for
// the rest.
func failureOf(err error) failure {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return failedNotTLS
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return failedBadClient
	}
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return failedTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return failedGone
	case errors.As(err, &op) && op.Op == "remote error":
		return failedRefused
	}
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) {
		return failedBadClient
	}
	for _, known := range handshakeWords {
		if strings.Contains(err.Error(), known.words) {
			return known.failure
		}
	}
	return failedOther
}

// handshakeWords are crypto/tls' own; a test goes through them.
var handshakeWords = []struct {
	words string
	failure
}{
	{"client didn't provide a certificate", failedNoCertificate},
	{"failed to verify certificate", failedBadClient},
	{"unsupported versions", failedVersion},
	{"no mutual cipher suite", failedCipher},
	{"no cipher suite supported", failedCipher},
	{"no supported elliptic curves", failedCipher},
	{"no ECDHE curve supported", failedCipher},
	{"no signature algorithm", failedCipher},
	{"peer doesn't support any of the certificate's signature algorithms", failedCipher},
	{"application protocol", failedALPN},
}
