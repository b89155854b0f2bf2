package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// tlsFiles are certificates of ECDSA P-256 for a proxy and its clients, below one authority. A nil one is no TLS.
type tlsFiles struct {
	Dir    string
	Mutual bool // clients must have a certificate
	curve  tls.CurveID
}

func (f *tlsFiles) Certificate() string { return filepath.Join(f.Dir, "app.crt") }
func (f *tlsFiles) Key() string         { return filepath.Join(f.Dir, "app.key") }
func (f *tlsFiles) Both() string        { return filepath.Join(f.Dir, "app.pem") } // in one file, as HAProxy wants them
func (f *tlsFiles) Authority() string   { return filepath.Join(f.Dir, "ca.crt") }

// makeTLS writes new ones.
func (b *bench) makeTLS(mutual bool) (*tlsFiles, error) {
	dir, err := b.folder("tls")
	if err != nil {
		return nil, err
	}
	f := &tlsFiles{Dir: dir, Mutual: mutual, curve: tls.X25519}
	ca, caKey, err := f.issue("ca", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	for _, name := range []string{"app", "client"} {
		if _, _, err := f.issue(name, ca, caKey); err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
	}
	return f, nil
}

// issue writes a certificate and its key, signed by the authority or, without one, by itself.
func (f *tlsFiles) issue(name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true, IsCA: by == nil,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if by == nil {
		template.KeyUsage, by, byKey = x509.KeyUsageCertSign, template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for extension, content := range map[string][]byte{".crt": public, ".key": private, ".pem": append(public[:len(public):len(public)], private...)} {
		if err := os.WriteFile(filepath.Join(f.Dir, name+extension), content, 0o600); err != nil {
			return nil, nil, err
		}
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

// client is the configuration of clients. They do not verify the server's certificate, which is their work and not the
// proxy's.
func (f *tlsFiles) client() *tls.Config {
	if f == nil {
		return nil
	}
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{f.curve}}
	if f.Mutual {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(f.Dir, "client.crt"), filepath.Join(f.Dir, "client.key"))
			return &pair, err
		}
	}
	return config
}

// inbound is the end of lastcall's --inbound.
func (f *tlsFiles) inbound() string {
	switch {
	case f == nil:
		return ""
	case f.Mutual:
		return fmt.Sprintf(",tls-cert=%s,tls-key=%s,tls-min-version=1.3,tls-client-ca=%s", f.Certificate(), f.Key(), f.Authority())
	}
	return fmt.Sprintf(",tls-cert=%s,tls-key=%s,tls-min-version=1.3", f.Certificate(), f.Key())
}

// envoy adds TLS to the listeners of Envoy's configuration.
func (f *tlsFiles) envoy(config []byte) ([]byte, error) {
	if f == nil {
		return config, nil
	}
	type m = map[string]any
	common := m{
		"tls_params":       m{"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"},
		"tls_certificates": []m{{"certificate_chain": m{"filename": f.Certificate()}, "private_key": m{"filename": f.Key()}}},
		"alpn_protocols":   []string{"http/1.1"},
	}
	if f.Mutual {
		common["validation_context"] = m{"trusted_ca": m{"filename": f.Authority()}}
	}
	socket := m{"name": "envoy.transport_sockets.tls", "typed_config": m{
		"@type":                      "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"require_client_certificate": f.Mutual, "common_tls_context": common,
	}}
	var bootstrap struct {
		Static struct {
			Listeners []m `json:"listeners"`
			Clusters  any `json:"clusters"`
		} `json:"static_resources"`
		Admin any `json:"admin"`
		Stats any `json:"stats_config"`
	}
	if err := json.Unmarshal(config, &bootstrap); err != nil {
		return nil, fmt.Errorf("add TLS to Envoy's configuration: %w", err)
	}
	for _, listener := range bootstrap.Static.Listeners {
		for _, chain := range listener["filter_chains"].([]any) {
			chain.(m)["transport_socket"] = socket
		}
	}
	return json.Marshal(bootstrap)
}

// arguments are those of the app that serveTLS is.
func (f *tlsFiles) arguments() []string {
	if f.Mutual {
		return []string{f.Certificate(), f.Key(), f.Authority()}
	}
	return []string{f.Certificate(), f.Key()}
}

// serveTLS shakes hands and answers each request by itself: what crypto/tls and the system calls cost, without any proxy.
// files are a certificate, its key and, if clients need one, their authority.
func serveTLS(listener net.Listener, files []string) error {
	pair, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if len(files) > 2 {
		authority, err := os.ReadFile(files[2])
		if err != nil {
			return err
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(authority)
	}
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(smallBody), smallBody)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			conn := tls.Server(conn, config)
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReaderSize(conn, 512)); err == nil {
				_, _ = io.WriteString(conn, answer) // that a client goes is how it ends
			}
		}()
	}
}
