package podtest

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// envoyProgram returns a copy of Envoy: the proxy's user may not look into our cache folder.
func envoyProgram(t *testing.T) string {
	t.Helper()
	source := peers.Need(t, "envoy")
	copied.Do(func() {
		// By another program: a file that we have open for writing could be busy.
		if out, err := exec.Command("install", "-m", "755", source, filepath.Dir(program)+"/envoy").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
	return filepath.Dir(program) + "/envoy"
}

var copied sync.Once // of Envoy

// TestEnvoyCaptured has a real Envoy carry what is captured, and drains it: to IPv4 and IPv6, HTTP/1.1 and HTTP/2, and
// what is no HTTP.
func TestEnvoyCaptured(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.startSidecar(nil, "--proxy", "envoy", "--envoy-path", envoyProgram(t))
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
	must.Do(t, p.sidecar.Terminate())
	p.logged("phase=waiting")
	close(answer)
	if err := <-slow; err != nil {
		t.Error("the request in flight:", err)
	}
	stop()
	p.left("clean")
}

func TestInboundHTTP(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " from ", r.RemoteAddr) })
	p.servesThrough("the pipe")
}

// servesThrough requires that clients of both families and of both versions of HTTP get the app's answer through a proxy.
func (p *pod) servesThrough(proxy string) {
	p.t.Helper()
	for family, address := range p.addresses() {
		for _, h2 := range []bool{false, true} {
			resp, err := p.client(h2).Get("http://" + address + "/")
			if err != nil {
				p.t.Errorf("%s, HTTP/2 %v: %v", family, h2, err)
				continue
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			_, from, _ := strings.Cut(string(b), " from ")
			through := p.isFromSidecar(from)
			if resp.StatusCode != 200 || !through || strings.HasPrefix(string(b), "HTTP/2.0") != h2 {
				p.t.Errorf("%s, HTTP/2 %v: %d %s; want it to come through %s", family, h2, resp.StatusCode, b, proxy)
			}
		}
	}
}
