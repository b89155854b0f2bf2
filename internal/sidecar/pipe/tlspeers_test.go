package pipe

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

// outputOf runs a program and returns what it has to say.
func outputOf(t *testing.T, stdin string, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mutualTLS asks clients for a certificate of the same authority.
func mutualTLS(c *tlsserver.Options) { c.ClientCA = filepath.Join(filepath.Dir(c.Cert), "ca.crt") }

func bothProtocols(c *tlsserver.Options) { c.ALPN = []string{"h2", "http/1.1"} }

func TestTLSWithRealClients(t *testing.T) {
	authority := certificatetest.New(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	must.Do(t, os.WriteFile(ca, authority.PEM(), 0o600))
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "by %s\n", r.Proto) })
	p := startPipe(t, app, Auto, secured(t, authority, bothProtocols))
	at := p.Addr(0).String()
	url := "https://" + at + "/"
	for _, c := range []struct {
		client string
		args   []string
		stdin  string
		want   string
	}{
		{"curl", []string{"-sS", "--cacert", ca, "--http1.1", url}, "", "by HTTP/1.1"},
		{"curl", []string{"-sS", "--cacert", ca, "--http1.1", "--tls-max", "1.2", url, url}, "", "by HTTP/1.1\nby HTTP/1.1"},
		{"curl", []string{"-sS", "--cacert", ca, "--http2", url}, "", "by HTTP/2.0"},
		{"curl", []string{"-sS", "--cacert", ca, "--no-alpn", url}, "", "by HTTP/1.1"},
		{"nghttp", []string{url}, "", "by HTTP/2.0"},
		{"h2load", []string{"-n200", "-c4", "-m8", url}, "", "200 succeeded, 0 failed"},
		{"openssl", []string{"s_client", "-quiet", "-verify_quiet", "-verify_return_error", "-CAfile", ca, "-tls1_2", "-connect", at}, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "by HTTP/1.1"},
		{"openssl", []string{"s_client", "-quiet", "-verify_quiet", "-verify_return_error", "-CAfile", ca, "-tls1_3", "-servername", "app.test", "-alpn", "http/1.1", "-connect", at}, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "by HTTP/1.1"},
	} {
		t.Run(c.client, func(t *testing.T) {
			got, err := outputOf(t, c.stdin, peers.Need(t, c.client), c.args...)
			// OpenSSL 3 reports a FIN without close_notify as an unexpected eof.
			if err != nil || !strings.Contains(got, c.want) || strings.Contains(got, "unexpected eof") {
				t.Errorf("%v: %s", err, got)
			}
		})
	}
	t.Run("a session is resumed", func(t *testing.T) {
		openssl, session := peers.Need(t, "openssl"), filepath.Join(t.TempDir(), "session")
		for _, option := range []string{"-sess_out", "-sess_in"} {
			got, err := outputOf(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", openssl, "s_client", "-ign_eof", "-CAfile", ca, option, session, "-connect", at)
			if err != nil || strings.Contains(got, "Reused, ") != (option == "-sess_in") {
				t.Errorf("%s: %v: %s", option, err, got)
			}
		}
		if s := p.Listeners()[0].TLS; s.Resumed != 1 {
			t.Errorf("%+v", s)
		}
	})
	for _, c := range p.Connections() {
		if c.State != StateClosing {
			t.Errorf("%+v", c)
		}
	}
}

// tlsClient is a client of HTTP whose connections can be distinguished.
func tlsClient(t *testing.T, authority *certificatetest.Authority) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// fetch is one request whose answer is read; serial is of the certificate that the
// connection was begun with.
func fetch(c *http.Client, url string) (body, serial string, err error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), resp.TLS.PeerCertificates[0].SerialNumber.String(), err
}

// SIGHUP reads the certificates at once, not when the folder's change is noticed; a connection from before stays.
func TestReloadCertificates(t *testing.T) {
	authority := certificatetest.New(t)
	secret := certificatetest.NewSecret(t)
	first := authority.Sign("app.test", 0)
	secret.Swap(first, authority.PEM())
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
	p := startPipe(t, app, HTTP, func(cfg *Config) { cfg.Inbound[0].TLS = &tlsserver.Options{Cert: secret.Cert(), Key: secret.Key()} })
	url := "https://" + p.Addr(0).String() + "/"
	kept := tlsClient(t, authority)
	connection, _, err := fetch(kept, url)
	must.Do(t, err)
	again := authority.Sign("app.test", 0)
	secret.Swap(again, authority.PEM())
	p.ReloadCertificates()
	if _, serial, err := fetch(tlsClient(t, authority), url); err != nil || serial != again.Leaf.SerialNumber.String() {
		t.Errorf("after a reload %s serves; %v", serial, err)
	}
	if body, serial, err := fetch(kept, url); err != nil || body != connection || serial != first.Leaf.SerialNumber.String() {
		t.Errorf("the connection from before is %s with %s, was %s; %v", body, serial, connection, err)
	}
}
