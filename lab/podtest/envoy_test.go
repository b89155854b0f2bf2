package podtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// TestEnvoyCaptured has a real Envoy carry what is captured, and drains it: to IPv4 and IPv6, HTTP/1.1 and HTTP/2, and
// what is no HTTP.
func TestEnvoyCaptured(t *testing.T) {
	t.Parallel()
	envoy := filepath.Join(filepath.Dir(program), "envoy-captured")
	data, err := os.ReadFile(peers.Need(t, "envoy"))
	if err != nil {
		t.Fatal(err)
	}
	// The proxy's user may not look into our cache folder.
	if err := os.WriteFile(envoy, data, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(envoy) })
	p := newPod(t)
	p.startSidecar(nil, "--proxy", "envoy", "--envoy-path", envoy)
	requested, answer := make(chan struct{}), make(chan struct{})
	stop := p.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(requested)
			<-answer
		}
		fmt.Fprint(w, r.Proto, " from ", r.RemoteAddr)
	})
	p.servesThrough("Envoy")
	slow := make(chan error)
	go func() {
		code, body, err := p.get(p.Pod.TCP4(appPort), "/slow")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		slow <- err
	}()
	<-requested
	if err := p.sidecar.Terminate(); err != nil {
		t.Fatal(err)
	}
	p.logged("waiting")
	close(answer)
	if err := <-slow; err != nil {
		t.Error("the request in flight:", err)
	}
	stop()
	p.left("clean")
}
