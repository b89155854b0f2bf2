package podtest

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// The kubelet's probes, turned to the status port by the injection: answered as the app answers, bypassing the capture, and not
// counted as traffic.
func TestProbes(t *testing.T) {
	t.Parallel()
	p := start(t, `ISTIO_KUBE_APP_PROBERS={
		"/app-health/shop/readyz": {"httpGet": {"path": "/ready?deep=1", "port": 8080, "httpHeaders": [{"name": "Host", "value": "shop.test"}]}},
		"/app-health/shop/livez": {"tcpSocket": {"port": 8080}},
		"/app-health/shop/startupz": {"grpc": {"port": 8080, "service": "shop"}},
		"/app-health/shop/gone": {"tcpSocket": {"port": 8081}}
	}`)
	var ready atomic.Bool
	ready.Store(true)
	stop := p.serve(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/grpc.health.v1.Health/Check":
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte{0, 0, 0, 0, 2, 0x08, 1}) // SERVING
			w.Header().Set("Grpc-Status", "0")
		case r.Host != "shop.test" || r.URL.RawQuery != "deep=1":
			http.Error(w, fmt.Sprint(r.Host, r.URL), http.StatusBadRequest)
		case !ready.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	want := func(path string, code int) {
		t.Helper()
		for _, address := range []string{p.Pod.TCP4(15020), p.Pod.TCP6(15020)} {
			got, body, err := p.get(address, "/app-health/shop/"+path)
			if err != nil || got != code {
				t.Errorf("%s at %s: %d %q, %v; want %d", path, address, got, body, err, code)
			}
		}
	}
	want("readyz", 200)
	want("livez", 200)
	want("startupz", 200)
	want("gone", 500)
	want("unknown", 404)
	ready.Store(false)
	want("readyz", 503)
	// They continue during the drain and do not delay it.
	done := make(chan struct{})
	go func() { defer close(done); _ = getWaitLocal(p) }()
	p.logged("phase=draining")
	want("livez", 200)
	<-done
	p.logged("phase=drained")
	stop()
	// A program that another test starts just now may hold the app's listener for a moment yet, between its fork and exec.
	p.until("without the app", func() bool {
		code, _, err := p.get(p.Pod.TCP4(15020), "/app-health/shop/livez")
		return err == nil && code == http.StatusInternalServerError
	})
}

// getWaitLocal is lastcall wait in the pod.
func getWaitLocal(p *pod) error {
	_, err := askFrom(p.Pod, http.MethodPost, "127.0.0.1:15020", "/wait")
	return err
}
