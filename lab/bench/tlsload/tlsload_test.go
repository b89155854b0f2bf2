package tlsload

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers over TLS, and returns its address and a configuration for clients.
func serve(t *testing.T, answer http.HandlerFunc) (string, *tls.Config) {
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.CurvePreferences = "example.com", []tls.CurveID{tls.CurveP256}
	return server.Listener.Addr().String(), config
}

func TestHandshakes(t *testing.T) {
	address, config := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	for _, resume := range []bool{false, true} {
		r, err := Handshakes{Address: address, Connections: 2, Config: config, Resume: resume, Duration: 200 * time.Millisecond}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if resume && r.Resumed < r.Requests-2 || !resume && r.Resumed > 0 || r.Requests < 4 || !strings.HasPrefix(r.Agreed, "TLS 1.3, CurveP256, TLS_") {
			t.Errorf("resume %t: %+v", resume, r)
		}
	}
}

func TestSteady(t *testing.T) {
	address, config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/bytes/"))
		if n, _ := io.Copy(io.Discard, r.Body); n != int64(size) {
			t.Errorf("%d bytes came, want %d", n, size)
		}
		_, _ = w.Write(make([]byte, size))
	})
	r, err := Steady{Address: address, Connections: 4, Config: config, Payload: 1024, Rate: 200, Duration: 200 * time.Millisecond}.Run(t.Context())
	if err != nil || r.Requests != 40 || r.P50 == 0 || r.P99 < r.P50 {
		t.Errorf("%+v, %v; want 40 requests", r, err)
	}
}

func TestFailuresAreErrors(t *testing.T) {
	address, config := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	if _, err := (Handshakes{Address: address, Connections: 1, Config: config, Duration: time.Second}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error %v", err)
	}
	if _, err := (Steady{Address: address, Connections: 1, Config: config, Payload: 1, Rate: 100, Duration: time.Second}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error %v", err)
	}
	if _, err := (Handshakes{Address: address, Connections: 1, Config: &tls.Config{MinVersion: tls.VersionTLS13}, Duration: time.Second}).Run(t.Context()); err == nil {
		t.Error("a certificate that no authority signed: no error")
	}
	// A server without session tickets can resume nothing.
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{SessionTicketsDisabled: true}
	server.StartTLS()
	defer server.Close()
	forgetful := Handshakes{Address: server.Listener.Addr().String(), Connections: 1, Resume: true, Duration: 100 * time.Millisecond,
		Config: &tls.Config{InsecureSkipVerify: true}}
	if _, err := forgetful.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "continued no session") {
		t.Errorf("without tickets: error %v", err)
	}
}
