package certificate_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

// TestSuites: in TLS 1.2 a client without authenticated encryption is refused.
func TestSuites(t *testing.T) {
	authority := certificatetest.New(t)
	own := authority.Sign("localhost", 0)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12, CipherSuites: certificate.Suites()})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_ = nc.(*tls.Conn).Handshake()
			_ = nc.Close()
		}
	}()
	offer := func(suites []uint16) error {
		nc, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: suites})
		if err == nil {
			_ = nc.Close()
		}
		return err
	}
	var others []uint16
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !strings.Contains(s.Name, "GCM") && !strings.Contains(s.Name, "POLY1305") || strings.HasPrefix(s.Name, "TLS_RSA_") {
			others = append(others, s.ID)
		}
	}
	if err := offer(others); err == nil {
		t.Error("a client without authenticated encryption was served")
	}
	if err := offer(certificate.Suites()); err != nil {
		t.Errorf("a client that offers what is served: %v", err)
	}
}
