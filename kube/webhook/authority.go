package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
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

// authority signs the server's certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "lastcall webhook authority"},
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// serial is random, as RFC 5280 requires: positive, at most 20 bytes.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return new(big.Int).SetBytes(b)
}

// sign creates a serving certificate for the service's names.
func (a *authority) sign(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the serving key: %w", err)
	}
	ends := now.Add(servingLife)
	if ends.After(a.cert.NotAfter) {
		ends = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: names[0]},
		DNSNames:     names,
		NotBefore:    now.Add(-backdated),
		NotAfter:     ends,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, err
}

// isOld reports whether two thirds of a certificate's life have passed.
func isOld(c *x509.Certificate, now time.Time) bool {
	life := c.NotAfter.Sub(c.NotBefore)
	return now.After(c.NotBefore.Add(life * 2 / 3))
}

func (a *authority) certPEM() []byte { return asPEM("CERTIFICATE", a.cert.Raw) }

func (a *authority) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("write the authority's key: %w", err)
	}
	return asPEM("PRIVATE KEY", der), nil
}

func asPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func parseAuthority(cert, key []byte) (*authority, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || pair.Leaf == nil || !pair.Leaf.IsCA {
		return nil, errors.New("read the authority: must be a certificate authority with an ECDSA key")
	}
	return &authority{pair.Leaf, private}, nil
}

// valid are the certificates of a bundle that have not expired, each once.
func valid(bundle []byte, now time.Time) []byte {
	var out [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(cert.NotAfter) {
			continue
		}
		text := asPEM("CERTIFICATE", block.Bytes)
		if !bytes.Contains(bytes.Join(out, nil), text) {
			out = append(out, text)
		}
	}
	return bytes.Join(out, nil)
}
