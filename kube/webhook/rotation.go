package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Cluster are the operations on Kubernetes that the certificate needs.
type Cluster interface {
	// Secret returns the Secret's data and version; no data when there is none.
	Secret(ctx context.Context) (data map[string][]byte, version string, err error)

	// PutSecret creates the Secret (version empty) or updates that version of it. It
	// returns ErrConflict if another replica was first.
	PutSecret(ctx context.Context, data map[string][]byte, version string) error

	// Trust writes the bundle into the webhook configurations that lack it.
	Trust(ctx context.Context, bundle []byte) error
}

// ErrConflict means that another replica was first.
var ErrConflict = errors.New("changed by another replica")

// Keys of the Secret.
const (
	keyCert     = "ca.crt" // the authority in use
	keyKey      = "ca.key"
	keyNextCert = "next.crt" // trusted already, in use after the overlap
	keyNextKey  = "next.key"
	keyOld      = "old.crt" // previous authorities that are still valid
)

// lookEvery is the interval of looks at the certificate.
const lookEvery = time.Minute

// lookTimeout is the time limit of one look.
const lookTimeout = 20 * time.Second

// Own is the server's own certificate, signed by the authority in the Secret.
type Own struct {
	Cluster Cluster
	Names   []string // of the service, for example lastcall.lastcall-system.svc
	Log     *slog.Logger

	serving atomic.Pointer[tls.Certificate]
	signer  []byte // the authority's certificate that signed it
}

// Certificate is the current one, for tls.Config.GetCertificate.
func (o *Own) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := o.serving.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Look advances the rotation by one step. Any number of replicas may call it at any time.
func (o *Own) Look(ctx context.Context, now time.Time) error {
	for range 5 {
		err := o.look(ctx, now)
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("agree on the authority with the other replicas: %w", ErrConflict)
}

func (o *Own) look(ctx context.Context, now time.Time) error {
	data, version, err := o.Cluster.Secret(ctx)
	if err != nil {
		return fmt.Errorf("read the authority's secret: %w", err)
	}
	changed, err := advance(data, now)
	if err != nil {
		return err
	}
	if changed != nil {
		if err := o.Cluster.PutSecret(ctx, changed, version); err != nil {
			return fmt.Errorf("write the authority's secret: %w", err)
		}
		o.Log.Info("webhook authority changed", "next", changed[keyNextCert] != nil)
		data = changed
	}
	if err := o.Cluster.Trust(ctx, bundle(data, now, keyCert, keyNextCert, keyOld)); err != nil {
		return fmt.Errorf("put the caBundle into the webhook configurations: %w", err)
	}
	return o.renew(data, now)
}

// renew signs a new serving certificate if there is none, if it is old, or if the authority has changed.
func (o *Own) renew(data map[string][]byte, now time.Time) error {
	current := o.serving.Load()
	if current != nil && !isOld(current.Leaf, now) && bytes.Equal(o.signer, data[keyCert]) {
		return nil
	}
	a, err := parseAuthority(data[keyCert], data[keyKey])
	if err != nil {
		return err
	}
	serving, err := sign(a, o.Names, now)
	if err != nil {
		return err
	}
	o.serving.Store(serving)
	o.signer = data[keyCert]
	o.Log.Info("new serving certificate", "until", serving.Leaf.NotAfter)
	return nil
}

// advance is the Secret's next state; nil if nothing has to change.
//
//	nothing, or nothing that can be used  → an authority
//	the authority is old                  → and a next one
//	the next one is trusted long enough   → it is the authority, the old one is only trusted
func advance(data map[string][]byte, now time.Time) (map[string][]byte, error) {
	current, err := parseAuthority(data[keyCert], data[keyKey])
	if err != nil || now.After(current.Leaf.NotAfter) {
		return fresh(keyCert, keyKey, nil, now)
	}
	next, err := parseAuthority(data[keyNextCert], data[keyNextKey])
	switch {
	case err == nil && now.After(next.Leaf.NotBefore.Add(backdated+overlap)):
		return map[string][]byte{
			keyCert: data[keyNextCert], keyKey: data[keyNextKey],
			keyOld: bundle(data, now, keyOld, keyCert),
		}, nil
	case err != nil && isOld(current.Leaf, now):
		return fresh(keyNextCert, keyNextKey, data, now)
	}
	return nil, nil
}

func fresh(certKey, keyKey string, data map[string][]byte, now time.Time) (map[string][]byte, error) {
	a, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(data)
	if out == nil {
		out = map[string][]byte{}
	}
	out[certKey], _ = cert.EncodeCertificates(a.Leaf) // never fails
	out[keyKey], err = keyutil.MarshalPrivateKeyToPEM(a.PrivateKey)
	return out, err
}

// Run checks the certificate at intervals until ctx ends, and passes each result to seen. The caller has
// done the first check.
func (o *Own) Run(ctx context.Context, seen func(error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		err := o.Look(looking, time.Now())
		cancel()
		if err != nil && ctx.Err() == nil {
			o.Log.Error("cannot renew the webhook's certificate; still using the current one", "error", err)
		}
		seen(err)
	}
}

// Lifetimes of certificates.
const (
	authorityLife = 365 * 24 * time.Hour
	servingLife   = 24 * time.Hour

	// overlap is how long a new authority is trusted before the first certificate is
	// signed by it: API servers must have seen the caBundle.
	overlap = time.Hour

	// backdated covers clocks that differ.
	backdated = 5 * time.Minute
)

func newAuthority(now time.Time) (*tls.Certificate, error) {
	return issue(nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "lastcall webhook authority"},
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, now)
}

// sign creates a serving certificate for the service's names.
func sign(authority *tls.Certificate, names []string, now time.Time) (*tls.Certificate, error) {
	ends := now.Add(servingLife)
	if ends.After(authority.Leaf.NotAfter) {
		ends = authority.Leaf.NotAfter
	}
	return issue(authority, &x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		DNSNames:    names,
		NotAfter:    ends,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now)
}

// issue creates a key, and its certificate, which the authority signs; without one, it signs itself.
func issue(authority *tls.Certificate, template *x509.Certificate, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the key of %s: %w", template.Subject.CommonName, err)
	}
	template.NotBefore = now.Add(-backdated)
	if authority == nil {
		authority = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("create the certificate of %s: %w", template.Subject.CommonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	chain := append([][]byte{der}, authority.Certificate...)
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, err
}

// isOld reports whether two thirds of a certificate's life have passed.
func isOld(c *x509.Certificate, now time.Time) bool {
	life := c.NotAfter.Sub(c.NotBefore)
	return now.After(c.NotBefore.Add(life * 2 / 3))
}

func parseAuthority(cert, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	if !pair.Leaf.IsCA {
		return nil, errors.New("read the authority: must be a certificate authority")
	}
	return &pair, nil
}

// bundle are the certificates at some keys of the Secret that have not expired, each once.
func bundle(data map[string][]byte, now time.Time, keys ...string) []byte {
	var all []*x509.Certificate
	for _, key := range keys {
		certs, _ := cert.ParseCertsPEM(data[key]) // those before one that is not readable
		for _, c := range certs {
			if !now.After(c.NotAfter) && !slices.ContainsFunc(all, c.Equal) {
				all = append(all, c)
			}
		}
	}
	text, _ := cert.EncodeCertificates(all...) // never fails
	return text
}
