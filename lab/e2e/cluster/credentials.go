package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// makeCredentials makes the API server's certificate and its authority, the key of service accounts' tokens, and one
// administrator's token that all programs of the node share, which it returns. They are made again at each start.
func (l layout) makeCredentials() (token string, err error) {
	token = rand.Text()
	// The certificate comes with that of its authority.
	addresses := []net.IP{net.ParseIP(nodeIP), net.ParseIP(apiService), net.ParseIP("127.0.0.1")}
	server, key, err := cert.GenerateSelfSignedCertKey("kubernetes", addresses,
		[]string{"kubernetes.default", "kubernetes.default.svc", "localhost"})
	if err != nil {
		return "", fmt.Errorf("make the API server's certificate: %w", err)
	}
	accounts, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{
		"ca.crt": server, "apiserver.crt": server, "apiserver.key": key, "sa.key": accounts,
		"tokens.csv": fmt.Appendf(nil, "%s,admin,1,\"system:masters\"\n", token),
	} {
		if err := l.write("pki/"+name, string(content)); err != nil {
			return "", err
		}
	}
	return token, nil
}

// write writes a file below the cluster's folder.
func (l layout) write(name, text string) error {
	file := l.path(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}
