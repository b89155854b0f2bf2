package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials are made again at each start: an authority, the API server's certificate, the key of service accounts'
// tokens, and one administrator's token that all programs of the node share.
type credentials struct{ token string }

func (l layout) makeCredentials() (*credentials, error) {
	c := &credentials{token: rand.Text()}
	if err := os.MkdirAll(l.path("pki"), 0o700); err != nil {
		return nil, err
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lastcall end-to-end tests"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	authorityKey, err := l.certify("ca", authority, authority, nil)
	if err != nil {
		return nil, err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"},
		IPAddresses: []net.IP{net.ParseIP(nodeIP), net.ParseIP(apiService), net.ParseIP("127.0.0.1")},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if _, err := l.certify("apiserver", server, authority, authorityKey); err != nil {
		return nil, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if err := l.writeKey("sa", accounts); err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&accounts.PublicKey)
	if err != nil {
		return nil, err
	}
	if err := l.writePEM("sa.pub", "PUBLIC KEY", public, 0o644); err != nil {
		return nil, err
	}
	return c, l.write("pki/tokens.csv", fmt.Sprintf("%s,admin,1,\"system:masters\"\n", c.token))
}

// certify writes NAME.crt and NAME.key, signed by the parent's key, or by its own when that is nil.
func (l layout) certify(name string, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if parentKey == nil {
		parentKey = key
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	if err := l.writePEM(name+".crt", "CERTIFICATE", der, 0o644); err != nil {
		return nil, err
	}
	return key, l.writeKey(name, key)
}

func (l layout) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return l.writePEM(name+".key", "PRIVATE KEY", der, 0o600)
}

func (l layout) writePEM(name, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(l.path("pki", name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

// write writes a file below the cluster's folder.
func (l layout) write(name, text string) error {
	file := l.path(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}
