package certificate_test

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
)

// TestSuites: in TLS 1.2 all suites with authenticated encryption and forward secrecy are offered, and no others.
func TestSuites(t *testing.T) {
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		want := slices.Contains(s.SupportedVersions, tls.VersionTLS12) && strings.HasPrefix(s.Name, "TLS_ECDHE_") &&
			(strings.Contains(s.Name, "GCM") || strings.Contains(s.Name, "POLY1305"))
		if got := slices.Contains(certificate.Suites(), s.ID); got != want {
			t.Errorf("%s: offered %v, want %v", s.Name, got, want)
		}
	}
}
