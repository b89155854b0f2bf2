package certificate_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follow runs the files' watch until the test ends and returns its readings.
func follow(t *testing.T, f *certificate.Files) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	results, ended := make(chan error, 64), make(chan error, 1)
	go func() { ended <- f.Run(ctx, func(err error) { results <- err }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	must.Do(t, <-results)
	return results
}

// await takes readings until one is as wanted.
func await(t *testing.T, results <-chan error, what string, is func(error) bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case err := <-results:
			if is(err) {
				return
			}
		case <-late:
			t.Fatalf("nothing was read for 20 s that is %s", what)
		}
	}
}

func serial(f *certificate.Files) string { return f.Leaf().SerialNumber.String() }

// TestFilesAreReadAgain changes files in each way in which they are changed.
func TestFilesAreReadAgain(t *testing.T) {
	authority := certificatetest.New(t)
	for _, way := range []string{"in place", "as a Secret"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			secret := certificatetest.NewSecret(t)
			write := secret.Write
			if way == "as a Secret" {
				write = secret.Swap
			}
			write(authority.Sign("one", 0), authority.PEM())
			f := &certificate.Files{Cert: secret.Cert(), Key: secret.Key(), ClientCA: secret.CA(), Log: slog.New(slog.DiscardHandler)}
			must.Do(t, f.Load())
			results := follow(t, f)
			two := authority.Sign("two", 0)
			write(two, authority.PEM())
			await(t, results, "the second certificate", func(err error) bool { return err == nil && serial(f) == two.Leaf.SerialNumber.String() })

			other := certificatetest.New(t)
			before := f.ClientCAs()
			write(two, other.PEM())
			await(t, results, "the other authority", func(err error) bool { return err == nil && !f.ClientCAs().Equal(before) })

			write(authority.Sign("old", time.Hour), other.PEM())
			await(t, results, "refused as expired", func(err error) bool { return err != nil && strings.Contains(err.Error(), "it has expired on") })
			write(two, []byte("no authority"))
			await(t, results, "refused for its authorities", func(err error) bool {
				return err != nil && strings.Contains(err.Error(), "it contains no certificate")
			})
			if serial(f) != two.Leaf.SerialNumber.String() {
				t.Errorf("%s is in force", f.Leaf().Subject)
			}
		})
	}
}

// Files that cannot be read leave the current certificate in use, and the error names the reason.
func TestBadFilesChangeNothing(t *testing.T) {
	authority := certificatetest.New(t)
	secret := certificatetest.NewSecret(t)
	good := authority.Sign("good", 0)
	cert, key := certificatetest.Encode(t, good)
	_, otherKey := certificatetest.Encode(t, authority.Sign("other", 0))
	secret.Write(good, authority.PEM())
	f := &certificate.Files{Cert: secret.Cert(), Key: secret.Key(), ClientCA: secret.CA(), Log: slog.New(slog.DiscardHandler)}
	must.Do(t, f.Load())
	for _, bad := range []struct {
		name, file string
		content    []byte
		want       string
	}{
		{"another's key", secret.Key(), otherKey, "does not match"},
		{"no key", secret.Key(), nil, "must be matching PEM files"},
		{"garbage", secret.Cert(), []byte("garbage"), "must be matching PEM files"},
		{"half a file", secret.Cert(), cert[:len(cert)/2], "must be matching PEM files"},
		{"a key among the authorities", secret.CA(), key, "it contains a PRIVATE KEY"},
		{"no authority", secret.CA(), nil, "it contains no certificate"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			was, err := os.ReadFile(bad.file)
			must.Do(t, err)
			must.Do(t, os.WriteFile(bad.file, bad.content, 0o600))
			if err := f.Reload(); err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%v", err)
			}
			if serial(f) != good.Leaf.SerialNumber.String() || f.ClientCAs() == nil {
				t.Errorf("%s is in force", f.Leaf().Subject)
			}
			must.Do(t, os.WriteFile(bad.file, was, 0o600))
			if err := f.Reload(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The first certificate serves whatever its dates, and one that is as bad may
// follow it.
func TestExpiredIsBetterThanNone(t *testing.T) {
	authority := certificatetest.New(t)
	secret := certificatetest.NewSecret(t)
	secret.Write(authority.Sign("old", time.Hour), nil)
	f := &certificate.Files{Cert: secret.Cert(), Key: secret.Key(), Log: slog.New(slog.DiscardHandler)}
	must.Do(t, f.Load())
	if err := certificate.Valid(f.Leaf()); err == nil {
		t.Error("it counts as valid")
	}
	next := authority.Sign("as old", 30*time.Minute)
	secret.Write(next, nil)
	if err := f.Load(); err != nil || serial(f) != next.Leaf.SerialNumber.String() {
		t.Errorf("%v, %s is in force", err, f.Leaf().Subject)
	}
}

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
