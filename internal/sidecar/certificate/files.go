// Package certificate loads certificates and follows their files. A certificate in use is replaced only by a valid one:
// while the new files are invalid, the old certificate stays in use and an error is logged.
package certificate

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return false, fmt.Errorf("certificate %q with key %q (must be matching PEM files): %w", f.Cert, f.Key, err)
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

const (
	// lookInterval is the time between two looks at the files. Notifications by the kernel would be sooner, but a node's
	// sidecars share a limit of 128 watchers per user (fs.inotify.max_user_instances).
	lookInterval = time.Second

	// retryInterval is the time until refused files are read again: a certificate may have become valid.
	retryInterval = 10 * time.Second
)

// version changes with the content of the files, whose times are too coarse: two versions that are written within a
// tick of the kernel's clock (4 ms) have the same time, and often the same size.
func (f *Files) version() string {
	sum := sha256.New()
	for _, name := range []string{f.Cert, f.Key, f.ClientCA} {
		content, _ := os.ReadFile(name) // Reload reports the error
		fmt.Fprintln(sum, len(content))
		sum.Write(content)
	}
	return string(sum.Sum(nil))
}

// Run reads the files again when they change, until ctx ends; seen is called after each reading. Its error is nil.
func (f *Files) Run(ctx context.Context, seen func(error)) error {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	version := "not read yet"
	var retryAt time.Time // of files that were refused; zero: they were not
	for {
		now := f.version() // before the reading: a later change is read at the next look
		if now != version || !retryAt.IsZero() && !time.Now().Before(retryAt) {
			version, retryAt = now, time.Time{}
			err := f.Reload()
			if err != nil {
				retryAt = time.Now().Add(retryInterval)
			}
			seen(err)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Reload is Load with log lines: an error is logged when it differs from the previous one.
func (f *Files) Reload() error {
	changed, err := f.load()
	switch {
	case err != nil:
		if before := f.lastError.Swap(new(err.Error())); before != nil && *before == err.Error() {
			break // logged already
		}
		f.Log.Error("cannot load the certificate; the current one stays in use", "error", err)
	case changed:
		leaf := f.Leaf()
		f.Log.Info("certificate loaded", "file", f.Cert, "subject", leaf.Subject.String(), "until", leaf.NotAfter)
		if err := Valid(leaf); err != nil {
			f.Log.Warn("the current certificate is not valid", "file", f.Cert, "error", err)
		}
	}
	if err == nil {
		f.lastError.Store(nil)
	}
	return err
}
