package cni

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func TestIsRemoved(t *testing.T) {
	status, body := 0, ""
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1/namespaces/system/daemonsets/lastcall-cni" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s with %q", r.URL, r.Header)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer api.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token": "secret\n", "namespace": "system",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	host, port, _ := net.SplitHostPort(api.Listener.Addr().String())
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	d := &DaemonSet{Name: "lastcall-cni", Dir: dir}
	for _, c := range []struct {
		name    string
		status  int
		body    string
		want    bool
		isKnown bool
	}{
		{"no right from the start", 403, `{}`, false, false},
		{"an API server that starts", 503, ``, false, false},
		{"there", 200, `{"metadata":{"name":"lastcall-cni"}}`, false, true},
		{"being deleted", 200, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, true, true},
		{"deleted", 404, `{}`, true, true},
		{"the role is deleted as well", 403, `{}`, true, true},
		{"the account is deleted as well", 401, `{}`, true, true},
		{"no JSON", 200, `x`, false, false},
		{"a failure", 500, `{}`, false, false},
	} {
		status, body = c.status, c.body
		if got, err := d.IsRemoved(t.Context()); got != c.want || (err == nil) != c.isKnown {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
	api.Close()
	if got, err := d.IsRemoved(t.Context()); got || err == nil {
		t.Errorf("without an API server: %v, %v", got, err)
	}
}
