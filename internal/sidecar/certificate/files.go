// Package certificate loads certificates and follows their files. A certificate in use is replaced only by a valid one:
// while the new files are invalid, the old certificate stays in use and an error is logged.
package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Files is a certificate that another program maintains, such as cert-manager, or a mounted Secret. Its methods may be
// called concurrently.
type Files struct {
	Cert, Key string // PEM: a certificate with its chain, and its key
	ClientCA  string // PEM: the authorities of clients' certificates; empty: none
	Log       *slog.Logger

	loading   sync.Mutex // one Load after another
	serving   atomic.Pointer[set]
	lastError atomic.Pointer[string] // the latest error that Reload has logged
}

// set is the result of one reading.
type set struct {
	pair *tls.Certificate
	cas  *x509.CertPool // nil without ClientCA
	ca   []byte         // the file's content
}

// Certificate is the current certificate, for tls.Config.GetCertificate.
func (f *Files) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s := f.serving.Load(); s != nil {
		return s.pair, nil
	}
	return nil, errors.New("no certificate loaded yet")
}

// ClientCAs are the current authorities; nil without ClientCA.
func (f *Files) ClientCAs() *x509.CertPool {
	if s := f.serving.Load(); s != nil {
		return s.cas
	}
	return nil
}

// Leaf is the current certificate without its chain; nil before the first Load.
func (f *Files) Leaf() *x509.Certificate {
	if s := f.serving.Load(); s != nil {
		return s.pair.Leaf
	}
	return nil
}

// Load reads the files. After an error the current certificate stays in use. A certificate that is not valid now is
// refused, except as the first one: serving it is no worse than not serving.
func (f *Files) Load() error {
	_, err := f.load()
	return err
}

// load is Load; changed reports whether the current certificate was replaced.
func (f *Files) load() (changed bool, err error) {
	f.loading.Lock()
	defer f.loading.Unlock()
	pair, err := Load(f.Cert, f.Key)
	if err != nil {
		return false, err
	}
	next := &set{pair: &pair}
	if f.ClientCA != "" {
		if next.ca, err = os.ReadFile(f.ClientCA); err != nil {
			return false, fmt.Errorf("read the clients' authorities: %w", err)
		}
		if next.cas, err = authorities(next.ca); err != nil {
			return false, fmt.Errorf("read the clients' authorities %s: %w", f.ClientCA, err)
		}
	}
	now := f.serving.Load()
	if now != nil && Valid(pair.Leaf) != nil && Valid(now.pair.Leaf) == nil {
		return false, fmt.Errorf("certificate %s: %w", f.Cert, Valid(pair.Leaf))
	}
	f.serving.Store(next)
	return now == nil || !now.pair.Leaf.Equal(next.pair.Leaf) || !bytes.Equal(now.ca, next.ca), nil
}

// Load reads a PEM certificate with its chain, and its key. Leaf is set.
func Load(cert, key string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %q with key %q (must be matching PEM files): %w", cert, key, err)
	}
	return pair, nil
}

// Valid returns an error when the certificate has expired or is not valid yet.
func Valid(leaf *x509.Certificate) error {
	switch now := time.Now(); {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("it has expired on %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("it is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// authorities parses certificates in PEM, at least one. Unlike x509.CertPool.AppendCertsFromPEM it skips none silently.
func authorities(b []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	some := false
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it contains a %s: must be PEM certificates", block.Type)
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(ca)
		some = true
	}
	if !some {
		return nil, errors.New("it contains no certificate: must be PEM certificates")
	}
	return pool, nil
}

// Suites are the TLS 1.2 cipher suites of lastcall's servers: those with authenticated encryption. Go's default also
// has suites in CBC mode, which audits reject. TLS 1.3 has no others.
func Suites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}
