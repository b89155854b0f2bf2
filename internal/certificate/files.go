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

// Files is a certificate that something else keeps up, such as cert-manager or a
// mounted Secret. Its methods may be called at the same time as each other.
type Files struct {
	Cert, Key string // PEM: a certificate with its chain, and its key

	// ClientCA holds the authorities of clients' certificates, PEM; empty for none.
	ClientCA string

	Log *slog.Logger

	loading sync.Mutex // one Load after another
	serving atomic.Pointer[set]
	said    atomic.Pointer[string] // the latest error of Reload
}

// set is what was read at one time.
type set struct {
	pair *tls.Certificate
	cas  *x509.CertPool // nil without ClientCA
	ca   []byte         // the file that they were read from
}

// Certificate is the one in force, for tls.Config.GetCertificate.
func (f *Files) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s := f.serving.Load(); s != nil {
		return s.pair, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// ClientCAs are the authorities in force; nil without ClientCA.
func (f *Files) ClientCAs() *x509.CertPool {
	if s := f.serving.Load(); s != nil {
		return s.cas
	}
	return nil
}

// Leaf is the certificate in force, without its chain; nil before the first Load.
func (f *Files) Leaf() *x509.Certificate {
	if s := f.serving.Load(); s != nil {
		return s.pair.Leaf
	}
	return nil
}

// Load reads the files. With an error, what is in force stays. A certificate that
// is not valid now is refused, unless there is none that is: the first one serves
// whatever its dates, because no service at all would be no better.
func (f *Files) Load() error {
	_, err := f.load()
	return err
}

// load is Load; changed says whether something new is in force.
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
		return tls.Certificate{}, fmt.Errorf("certificate %q with key %q (accepted are PEM files that belong together): %w", cert, key, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return tls.Certificate{}, fmt.Errorf("read the certificate %s: %w", cert, err)
		}
	}
	return pair, nil
}

// Valid is an error when the certificate's time is over or has not come.
func Valid(leaf *x509.Certificate) error {
	switch now := time.Now(); {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("it has expired on %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("it is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// authorities reads certificates in PEM, at least one. Unlike
// x509.CertPool.AppendCertsFromPEM it leaves none out in silence.
func authorities(b []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	some := false
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("there is a %s in it: accepted are PEM certificates", block.Type)
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(ca)
		some = true
	}
	if !some {
		return nil, errors.New("there is no certificate in it: accepted are PEM certificates")
	}
	return pool, nil
}
