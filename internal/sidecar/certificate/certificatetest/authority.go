// Package certificatetest makes certificates for tests, and files of them as they are found on machines and in pods.
package certificatetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	template := newTemplate(t, "test authority", time.Now())
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	a.key = newKey(t)
	a.cert = issue(t, template, template, a.key, a.key).Leaf
	return a
}

// issue makes a certificate of a template for a key, signed with the key of parent.
func issue(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newTemplate is the template of a certificate that is valid for an hour around now.
func newTemplate(t testing.TB, name string, now time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-30 * time.Minute), NotAfter: now.Add(30 * time.Minute),
		BasicConstraintsValid: true,
	}
}

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Sign makes a certificate for a server or client of that name, and for loopback.
// With ago, its half hour ended that long ago.
func (a *Authority) Sign(name string, ago time.Duration) tls.Certificate {
	a.t.Helper()
	now := time.Now()
	if ago > 0 {
		now = now.Add(-ago - 30*time.Minute)
	}
	template := newTemplate(a.t, name, now)
	template.DNSNames, template.IPAddresses = []string{name}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return issue(a.t, template, a.cert, newKey(a.t), a.key)
}

// SelfSigned makes a certificate for names and IP addresses that a client trusts with its Leaf as a root.
func SelfSigned(t testing.TB, hosts ...string) tls.Certificate {
	t.Helper()
	template := newTemplate(t, hosts[0], time.Now())
	template.IsCA, template.KeyUsage = true, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key := newKey(t)
	return issue(t, template, template, key, key)
}

// Root makes another authority, valid from one moment until another, in PEM.
func Root(t testing.TB, from, until time.Time) (cert, key []byte) {
	t.Helper()
	template := newTemplate(t, "another authority", from)
	template.NotBefore, template.NotAfter, template.IsCA = from, until, true
	template.KeyUsage, template.MaxPathLenZero = x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, true
	private := newKey(t)
	return Encode(t, issue(t, template, template, private, private))
}

// Encode is a certificate and its key in PEM.
func Encode(t testing.TB, c tls.Certificate) (cert, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Secret is a folder with tls.crt, tls.key and ca.crt.
type Secret struct {
	t       testing.TB
	Folder  string
	version int
}

// NewSecret makes an empty one.
func NewSecret(t testing.TB) *Secret { return &Secret{t: t, Folder: t.TempDir()} }

// Cert, Key and CA are its files.
func (s *Secret) Cert() string { return filepath.Join(s.Folder, "tls.crt") }
func (s *Secret) Key() string  { return filepath.Join(s.Folder, "tls.key") }
func (s *Secret) CA() string   { return filepath.Join(s.Folder, "ca.crt") }

// Write writes the files in place, one after the other.
func (s *Secret) Write(c tls.Certificate, ca []byte) {
	s.t.Helper()
	cert, key := Encode(s.t, c)
	s.put(s.Folder, map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca})
}

// Swap replaces all files at once, as the kubelet does: the names are links into
// ..data, which is a link to a folder, which is replaced.
func (s *Secret) Swap(c tls.Certificate, ca []byte) {
	s.t.Helper()
	cert, key := Encode(s.t, c)
	s.version++
	version := "..version_" + string(rune('a'+s.version))
	s.must(os.Mkdir(filepath.Join(s.Folder, version), 0o755))
	files := map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca}
	s.put(filepath.Join(s.Folder, version), files)
	data := filepath.Join(s.Folder, "..data")
	s.must(os.Symlink(version, data+"_tmp"))
	s.must(os.Rename(data+"_tmp", data))
	for name := range files {
		if _, err := os.Lstat(filepath.Join(s.Folder, name)); err != nil {
			s.must(os.Symlink(filepath.Join("..data", name), filepath.Join(s.Folder, name)))
		}
	}
}

func (s *Secret) put(folder string, files map[string][]byte) {
	s.t.Helper()
	for name, b := range files {
		s.must(os.WriteFile(filepath.Join(folder, name), b, 0o600))
	}
}

func (s *Secret) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
