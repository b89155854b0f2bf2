package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestNeighbour(t *testing.T) {
	var asked, quit atomic.Int32
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ready" && asked.Add(1) < 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/quitquitquit" && r.Method == http.MethodPost:
			quit.Add(1)
		}
	}))
	defer sidecar.Close()
	env := map[string]string{"ENVOY_ADMIN_API": sidecar.URL + "/", "ISTIO_QUIT_API": sidecar.URL, "NEVER_KILL_ISTIO_ON_FAILURE": "true", "WAIT_FOR_ENVOY_TIMEOUT": "10s"}
	n, err := ParseNeighbour(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Await(context.Background()); err != nil || asked.Load() != 3 {
		t.Errorf("after %d questions: %v", asked.Load(), err)
	}
	n.End(1, slog.New(slog.DiscardHandler))
	if quit.Load() != 0 {
		t.Error("sidecar stopped though the app failed")
	}
	n.End(0, slog.New(slog.DiscardHandler))
	if quit.Load() != 1 {
		t.Errorf("sidecar stopped %d times; want once", quit.Load())
	}
	n.Ready, n.Timeout = "http://"+freeAddress(t)+"/ready", 20*time.Millisecond
	if err := n.Await(context.Background()); err == nil || !strings.Contains(err.Error(), "ENVOY_ADMIN_API") {
		t.Error(err)
	}
	if n, err := ParseNeighbour(func(string) string { return "" }); err != nil || n.Ready != "" || n.Quit != nil {
		t.Errorf("no variables: %+v, %v", n, err)
	}
	env = map[string]string{"ENVOY_ADMIN_API": sidecar.URL, "LINKERD_AWAIT_DISABLED": "1"}
	if n, err := ParseNeighbour(func(name string) string { return env[name] }); err != nil || n.Ready != "" {
		t.Errorf("START_WITHOUT_ENVOY: %+v, %v", n, err)
	}
	env = map[string]string{"WAIT_FOR_ENVOY_TIMEOUT": "soon", "NEVER_KILL_ISTIO": "maybe"}
	if _, err := ParseNeighbour(func(name string) string { return env[name] }); err == nil || !strings.Contains(err.Error(), "soon") || !strings.Contains(err.Error(), "maybe") {
		t.Error(err)
	}
}
