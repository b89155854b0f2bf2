package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// attackers are how many send at once.
const attackers = 24

// attackBody returns a review that costs a webhook without bounds far more than it has bytes.
func attackBody(name string) ([]byte, error) {
	head := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","namespace":"attack","operation":"CREATE","object":{"apiVersion":"v1","kind":"Pod",`
	list := func(n int, f func(int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(f(i))
		}
		return b.String()
	}
	switch name {
	case "empty":
		return []byte(head + `"spec":{"containers":[` + list(200_000, func(int) string { return "{}" }) + `]}}}}`), nil
	case "names":
		return []byte(head + `"spec":{"containers":[` + list(40_000, func(i int) string { return fmt.Sprintf(`{"name":"c%d"}`, i) }) + `]}}}}`), nil
	case "large":
		return []byte(head + `"metadata":{"annotations":{"a":"` + strings.Repeat("x", 5_000_000) + `"}}}}}`), nil
	case "bound": // as much as is examined
		return []byte(head + `"spec":{"containers":[` + list(1000, func(i int) string { return fmt.Sprintf(`{"name":"c%d","lifecycle":{},"ports":[{"name":"p"}]}`, i) }) + `]}}}}`), nil
	}
	return nil, fmt.Errorf("-attack %q: must be empty, names, large or bound", name)
}

// startAttack has another process attack the webhook, with what the load leaves of its core. It ends with ctx.
func startAttack(ctx context.Context, name, url, certificate string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "chrt", "--idle", "0", "taskset", "-c", strconv.Itoa(*loadCore), self, "-attack", name)
	c.Env = append(os.Environ(), "ATTACK_URL="+url, "ATTACK_ROOTS="+certificate)
	c.Stderr = os.Stderr
	return c, c.Start()
}

// attack sends until it is killed, each sender on a connection of its own, all from one address.
func attack(name, url, certificate string) error {
	body, err := attackBody(name)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(certificate)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 4)}}
	var sending sync.WaitGroup
	for range attackers {
		client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12},
		}}
		sending.Go(func() {
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
				resp, err := client.Post(url, "application/json", bytes.NewReader(body))
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	sending.Wait()
	return nil
}
