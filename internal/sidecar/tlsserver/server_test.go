package tlsserver

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// TestHandshakes classifies and counts handshakes of clients with good and with bad configurations.
func TestHandshakes(t *testing.T) {
	authority, other := certificatetest.New(t), certificatetest.New(t)
	secret := certificatetest.NewSecret(t)
	secret.Write(authority.Sign("app", 0), authority.PEM())
	s, err := New(&Options{Cert: secret.Cert(), Key: secret.Key(), ClientCA: secret.CA(), MinVersion: tls.VersionTLS12},
		[]string{"h2", "http/1.1"}, time.Second, "0.0.0.0:8443", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	mine := []tls.Certificate{authority.Sign("client", 0)}
	for _, c := range []struct {
		name   string
		client *tls.Config
		want   string // empty: the handshake succeeds
	}{
		{"accepted", &tls.Config{Certificates: mine, NextProtos: []string{"http/1.1"}}, ""},
		{"without a certificate", &tls.Config{}, "no_client_certificate"},
		{"another authority", &tls.Config{Certificates: []tls.Certificate{other.Sign("client", 0)}}, "bad_client_certificate"},
		{"TLS 1.1", &tls.Config{Certificates: mine, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "version"},
		{"another protocol", &tls.Config{Certificates: mine, NextProtos: []string{"smtp"}}, "alpn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.client.RootCAs, c.client.ServerName = authority.Pool(), "app"
			before := s.Stats()
			err := handshake(t, s.Config, c.client)
			if err != nil {
				s.Failed(ReasonOf(err))
			} else {
				s.Succeeded(false)
			}
			got := increase(before, s.Stats())
			want := map[string]uint64{c.want: 1}
			if c.want == "" {
				want = map[string]uint64{}
			}
			if !maps.Equal(got, want) || (err == nil) != (s.Stats().Full == before.Full+1) {
				t.Errorf("counted %v, want %v: %v", got, want, err)
			}
		})
	}
}

// handshake returns the server's error.
func handshake(t *testing.T, server, client *tls.Config) error {
	_, err := shake(t, server, client)
	return err
}

// shake returns the server's state, and its error. The client reads the session ticket that the server has sent.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer ln.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		if c, err := tls.Dial("tcp", ln.Addr().String(), client); err == nil {
			_, _ = c.Read(make([]byte, 1)) // until the server writes or closes
			_ = c.Close()
		}
	}()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	conn := tls.Server(c, server)
	err = conn.HandshakeContext(t.Context())
	if err == nil {
		_, err = conn.Write([]byte("x"))
		<-read
	}
	return conn.ConnectionState(), err
}

// TestAuthoritiesAreReplaced: with mTLS, handshakes share one configuration until the authorities change. Then clients of
// the old ones are refused, with a session of before as well, and those of the new ones are served.
func TestAuthoritiesAreReplaced(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			authority, other := certificatetest.New(t), certificatetest.New(t)
			secret := certificatetest.NewSecret(t)
			own := authority.Sign("app", 0)
			secret.Write(own, authority.PEM())
			s, err := New(&Options{Cert: secret.Cert(), Key: secret.Key(), ClientCA: secret.CA()}, nil, time.Second, "0.0.0.0:8443", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			client := func(by *certificatetest.Authority) *tls.Config {
				return &tls.Config{RootCAs: authority.Pool(), ServerName: "app", MaxVersion: version,
					Certificates: []tls.Certificate{by.Sign("client", 0)}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
			}
			first, later := client(authority), client(other)
			for i, resumed := range []bool{false, true, true} {
				if state, err := shake(t, s.Config, first); err != nil || state.DidResume != resumed || len(state.PeerCertificates) != 1 {
					t.Errorf("handshake %d: resumed %t with %d certificates, %v", i+1, state.DidResume, len(state.PeerCertificates), err)
				}
			}
			if _, err := shake(t, s.Config, later); ReasonOf(err) != BadCertificate {
				t.Errorf("a client of another authority: %v", err)
			}
			config := func() *tls.Config { c, _ := s.Config.GetConfigForClient(nil); return c }
			before := config()
			if config() != before {
				t.Error("each handshake has a configuration of its own")
			}
			secret.Write(own, other.PEM())
			s.Reload()
			if config() == before {
				t.Error("new authorities, and the same configuration")
			}
			if _, err := shake(t, s.Config, first); ReasonOf(err) != BadCertificate {
				t.Errorf("a client of the old authority: %v", err)
			}
			if state, err := shake(t, s.Config, later); err != nil || state.DidResume {
				t.Errorf("a client of the new authority: resumed %t, %v", state.DidResume, err)
			}
		})
	}
}

func increase(from, to *Stats) map[string]uint64 {
	before, changed := maps.Collect(from.Failures), map[string]uint64{}
	for reason, n := range to.Failures {
		if n > before[reason] {
			changed[reason] = n - before[reason]
		}
	}
	return changed
}

// TestReload replaces the certificate, and then breaks its file: the last one that was read stays in use.
func TestReload(t *testing.T) {
	authority, secret := certificatetest.New(t), certificatetest.NewSecret(t)
	secret.Write(authority.Sign("app", time.Hour), authority.PEM())
	s, err := New(&Options{Cert: secret.Cert(), Key: secret.Key()}, nil, time.Second, "0.0.0.0:8443", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	next := authority.Sign("app", 0)
	secret.Write(next, authority.PEM())
	s.Reload()
	secret.Write(tls.Certificate{Certificate: [][]byte{[]byte("broken")}, PrivateKey: next.PrivateKey}, authority.PEM())
	s.Reload()
	got, err := s.Config.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil || got.Leaf.SerialNumber.Cmp(next.Leaf.SerialNumber) != 0 {
		t.Errorf("serves %v, %v; want the second certificate", got.Leaf.SerialNumber, err)
	}
	if stats := s.Stats(); stats.Reloads != 2 || stats.ReloadFailures != 1 || !stats.NotAfter.Equal(next.Leaf.NotAfter) {
		t.Errorf("%+v", stats)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Cert: "a"}, {Key: "a"}, {ClientCA: "a"}} {
		if o.Check() == nil {
			t.Errorf("%+v is complete", o)
		}
	}
	if err := (&Options{Cert: "a", Key: "b"}).Check(); err != nil {
		t.Error(err)
	}
	if got := (*Server)(nil).Stats(); got != nil {
		t.Errorf("statistics without TLS: %v", got)
	}
	if got := ReasonOf(errors.New("unheard")); got != Other || got.IsConfiguration() {
		t.Errorf("an unknown error is %v", got)
	}
}
