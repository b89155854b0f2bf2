package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// serving is a server on loopback, and a client that trusts it.
type serving struct {
	url, plain string
	client     *http.Client
	stop       context.CancelFunc
	ended      chan error
}

func serve(t *testing.T, minimum time.Duration, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), roots *x509.CertPool, change ...func(*Server)) *serving {
	t.Helper()
	reviews, plain := nettest.Listen(t, "127.0.0.1:0"), nettest.Listen(t, "127.0.0.1:0")
	draining := drain.DefaultConfig()
	draining.MinimumDrain, draining.QuietTime, draining.IdleGrace = minimum, 0, 0
	s := &Server{Handler: testHandler(t), Certificate: certificate, Drain: draining, Log: slog.New(slog.DiscardHandler)}
	s.Seen(nil)
	for _, f := range change {
		f(s)
	}
	ctx, stop := context.WithCancel(t.Context())
	run := &serving{
		url: "https://" + reviews.Addr().String(), plain: "http://" + plain.Addr().String(), stop: stop, ended: make(chan error, 1),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			ForceAttemptHTTP2: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "hook.system.svc", MinVersion: tls.VersionTLS12},
		}},
	}
	go func() { run.ended <- s.Serve(ctx, reviews, plain) }()
	t.Cleanup(func() {
		stop()
		run.client.CloseIdleConnections()
	})
	return run
}

// http1 is the client without HTTP/2.
func (s *serving) http1(t *testing.T) *http.Client {
	config := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	transport := &http.Transport{TLSClientConfig: config, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Timeout: s.client.Timeout, Transport: transport}
}

func (s *serving) post(t *testing.T, client *http.Client) *http.Response {
	t.Helper()
	resp, err := client.Post(s.url+PathInjectNamespace, "application/json", strings.NewReader(reviewOf(podJSON, "CREATE")))
	if err != nil {
		t.Errorf("a review was not answered: %v", err)
		return nil
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	return resp
}

func (s *serving) get(t *testing.T, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(s.plain + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func ownCertificate(t *testing.T) (*Own, *sharedCluster) {
	t.Helper()
	c := &sharedCluster{}
	o := replica(c)
	must.Do(t, o.Look(t.Context(), time.Now()))
	return o, c
}

// TestSuites: a client of TLS 1.2 that offers only CBC suites is refused.
func TestSuites(t *testing.T) {
	o, c := ownCertificate(t)
	s := serve(t, 0, o.Certificate, c.roots(t))
	for suite, want := range map[uint16]bool{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: false, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: false, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: true} {
		nc, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{RootCAs: c.roots(t), ServerName: "hook.system.svc", MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}})
		if err == nil {
			_ = nc.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.CipherSuiteName(suite), err)
		}
	}
	s.stop()
	<-s.ended
}

func TestNotReadyWithoutACertificate(t *testing.T) {
	s := serve(t, 0, replica(&sharedCluster{}).Certificate, nil)
	if code, text := s.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "no certificate yet") {
		t.Errorf("%d %s", code, text)
	}
	s.stop()
	<-s.ended
}

// TestDrain: reviews are answered, as metrics are. After the signal they still are, including those on new connections, and
// every response ends its connection.
func TestDrain(t *testing.T) {
	o, c := ownCertificate(t)
	requests := new(drain.Requests)
	s := serve(t, 20*time.Second, o.Certificate, c.roots(t), func(s *Server) { s.Requests = requests })
	one := s.http1(t)
	if resp := s.post(t, s.client); resp.ProtoMajor != 2 {
		t.Errorf("HTTP/%d, the API server speaks HTTP/2", resp.ProtoMajor)
	}
	s.post(t, one)
	if _, text := s.get(t, "/metrics"); !strings.Contains(text, `endpoint="inject",outcome="patched"`) || !strings.Contains(text, "certificate_expiry_timestamp_seconds 1.") {
		t.Errorf("/metrics:\n%s", text)
	}
	s.stop()
	for answered := false; !answered; { // until the server has processed the signal
		answered = s.post(t, one).Close
	}
	for range 3 { // each on a new connection, since each response ends its own
		if resp := s.post(t, one); resp != nil && !resp.Close {
			t.Error("an answer did not end its connection")
		}
		s.post(t, s.client)
	}
	if code, _ := s.get(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz while draining: %d", code)
	}
	requests.Send(drain.Hurry)
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// TestDelay: until the end of the delay no connection is closed, because no other replica may be ready; a second signal
// ends the delay.
func TestDelay(t *testing.T) {
	o, c := ownCertificate(t)
	requests := new(drain.Requests)
	s := serve(t, 0, o.Certificate, c.roots(t), func(s *Server) { s.Delay, s.Requests = time.Hour, requests })
	one := s.http1(t)
	var used []string
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { used = append(used, i.Conn.LocalAddr().String()) }})
	s.stop()
	for range 50 {
		if resp := s.post(t, one); resp == nil || resp.Close {
			t.Fatal("a client was sent elsewhere")
		}
		r, err := http.NewRequestWithContext(trace, http.MethodPost, s.url+PathInjectNamespace, strings.NewReader(reviewOf(podJSON, "CREATE")))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if slices.ContainsFunc(used, func(address string) bool { return address != used[0] }) {
		t.Errorf("HTTP/2 used the connections %v, want one", used)
	}
	requests.Send(drain.Hurry)
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// TestRotationUnderLoad changes the certificate while requests come without a pause, on
// connections that last and on new ones.
func TestRotationUnderLoad(t *testing.T) {
	o, c := ownCertificate(t)
	next, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	roots := c.roots(t)
	roots.AddCert(next.Leaf)
	s := serve(t, 0, o.Certificate, roots)
	answers := make(chan struct{})
	done := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		transport := s.client.Transport.(*http.Transport).Clone()
		transport.DisableKeepAlives = i%2 == 0
		client := &http.Client{Timeout: 10 * time.Second, Transport: transport}
		clients.Go(func() {
			defer transport.CloseIdleConnections()
			for {
				s.post(t, client)
				select {
				case answers <- struct{}{}:
				case <-done:
					return
				}
			}
		})
	}
	for turn := range 5 {
		for range 20 {
			<-answers
		}
		a := next
		if turn%2 == 0 {
			if a, err = parseAuthority(c.data[keyCert], c.data[keyKey]); err != nil {
				t.Fatal(err)
			}
		}
		cert, err := sign(a, o.Names, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		o.serving.Store(cert)
	}
	close(done)
	clients.Wait()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}
