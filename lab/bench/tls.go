package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
)

// handshakes is the case in which each request has a connection, and so a full handshake, of its own.
const handshakes = "a handshake for each request"

var tlsTable = &table{
	name: "tls", what: "TLS terminated in front of the app", apps: []subject{backend}, tools: []string{"wrk"},
	how: func(*bench) string {
		return fmt.Sprintf("As above, with TLS (RSA of 2,048 bits); %d connections, or %d with a handshake for each request.",
			connections, shortClients)
	},
	subjects: []string{"lastcall-http", "haproxy-http", "nginx"},
	cases:    []string{"kept alive", handshakes},
	columns:  []column{middle(requestRate), middle(cpuPerRequest)},
	ratios:   []*metric{requestRate, cpuPerRequest},
	timed:    true, quick: []string{"lastcall-http", "haproxy-http"},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		at := place{Clients: connections, TLS: filepath.Join(b.dir, "tls.pem")}
		certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		if err := os.WriteFile(at.TLS, append(certificate, key...), 0o600); err != nil {
			return nil, fmt.Errorf("write the certificate: %w", err)
		}
		run := b.wrk("/get", connections)
		if t.kase == handshakes {
			run = b.wrk("/get", shortClients, "Connection: close")
		}
		return b.load(ctx, t, backend, at, run)
	},
}
