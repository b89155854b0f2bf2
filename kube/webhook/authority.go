package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

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
