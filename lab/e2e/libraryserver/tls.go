package main

import (
	"crypto/tls"

	"k8s.io/client-go/util/cert"
)

// ownTLS has a certificate that no client can verify.
func ownTLS() (*tls.Config, error) {
	signed, key, err := cert.GenerateSelfSignedCertKey("web", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(signed, key)
	return &tls.Config{Certificates: []tls.Certificate{pair}}, err
}
