package podtest

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

const (
	patience = 20 * time.Second
	proxyUID = 1337
	appPort  = 8080
)

// program is lastcall, built once.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(isApp) != "" {
		os.Exit(runApp())
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "8") // they wait for time to pass, not for a core
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "podtest")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // the proxy's user is not ours
			panic(err)
		}
		program = filepath.Join(dir, "lastcall")
		build := exec.Command("go", "build", "-tags", "nethttpomithttp2", "-o", program, "../../cmd/lastcall") // as make build does
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build lastcall: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// pod is a pod with its traffic captured, and a sidecar in it.
type pod struct {
	*nettest.Net
	t       *testing.T
	sidecar *container
	latest  *container // the app that was started last
}

// start makes a pod whose sidecar drains as quickly as it can.
func start(t *testing.T, env ...string) *pod {
	t.Helper()
	p := newPod(t)
	p.startSidecar(env)
	return p
}

// redirectOutbound are the arguments of a capture that redirects outbound connections too, which is not the default.
var redirectOutbound = []string{"--include-outbound-ranges", "*"}

// newPod makes a pod without a sidecar yet.
func newPod(t *testing.T, captureArgs ...string) *pod {
	t.Helper()
	p := &pod{Net: nettest.New(t), t: t}
	capture := p.run(p.Pod, "capture", nil, append([]string{program, "capture"}, captureArgs...)...)
	if err := capture.wait(t); err != nil {
		t.Fatalf("capture: %v\n%s", err, capture.log)
	}
	return p
}

// startSidecar starts lastcall agent and waits until it is ready.
func (p *pod) startSidecar(env []string, args ...string) {
	p.t.Helper()
	env = append([]string{"MINIMUM_DRAIN_DURATION=200ms", "LASTCALL_QUIET_TIME=0s", "LASTCALL_IDLE_GRACE=50ms"}, env...)
	args = append([]string{program, "agent", "--capture", "--termination-log", ""}, args...)
	p.sidecar = p.run(p.Pod.As(proxyUID, proxyUID), "sidecar", env, args...)
	p.until("ready", func() bool {
		code, _, err := p.get(p.Pod.TCP4(15020), "/healthz/ready")
		return err == nil && code == http.StatusOK
	})
}

// until polls for a condition that sends no event.
func (p *pod) until(what string, f func() bool) {
	p.t.Helper()
	polltest.Eventually(p.t, what, f, p.sidecar.log)
}

// logged waits until the sidecar has logged a text.
func (p *pod) logged(what string) {
	p.t.Helper()
	p.until("log line: "+what, func() bool { return strings.Contains(p.sidecar.log.String(), what) })
}

// left waits until the sidecar has gone, and wants it to be with a verdict.
func (p *pod) left(verdict string) {
	p.t.Helper()
	if err := p.sidecar.wait(p.t); err != nil {
		p.t.Errorf("exit: %v", err)
	}
	if !strings.Contains(p.sidecar.log.String(), "verdict="+verdict) {
		p.t.Errorf("the verdict is not %s", verdict)
	}
}

// client asks from the client's namespace.
func (p *pod) client(h2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: p.Client.Dial, Protocols: protocols, DisableKeepAlives: !h2,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// keepAlive is one connection from the client's namespace, for more than one request.
func (p *pod) keepAlive(address string) *loadtest.Kept {
	p.t.Helper()
	c, err := p.Client.Dial(p.t.Context(), "tcp", address)
	must.Do(p.t, err)
	p.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &loadtest.Kept{Conn: c, R: bufio.NewReader(c)}
}

// get asks from the client's namespace on a connection of its own.
func (p *pod) get(address, path string) (code int, body string, err error) {
	resp, err := p.client(false).Get("http://" + address + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// serve runs an HTTP app in the pod until stop.
func (p *pod) serve(h http.HandlerFunc) (stop func()) {
	end := nettest.Serve(p.t, p.Pod.Listen(p.t, "tcp", fmt.Sprintf(":%d", appPort)), h)
	leave := p.present()
	stop = func() { end(); leave() }
	p.t.Cleanup(stop)
	return stop
}

// present is the program that an app's hook leaves in its container, for an app that is part of the test; without a
// sidecar it is nothing.
func (p *pod) present() (leave func()) {
	c, err := p.Pod.Dial(p.t.Context(), "tcp", "127.0.0.1:15020")
	if err != nil {
		return func() {}
	}
	_, _ = fmt.Fprint(c, "POST /present HTTP/1.1\r\nHost: 127.0.0.1:15020\r\nContent-Length: 0\r\n\r\n")
	return func() { _ = c.Close() }
}

func (p *pod) addresses() map[string]string {
	return map[string]string{"IPv4": p.Pod.TCP4(appPort), "IPv6": p.Pod.TCP6(appPort)}
}

// metric is one of the sidecar's, as text; empty if there is none.
func (p *pod) metric(name string) string {
	p.t.Helper()
	_, body, err := p.get(p.Pod.TCP4(15020), "/metrics")
	must.Do(p.t, err)
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
