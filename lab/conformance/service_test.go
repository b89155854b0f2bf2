package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

const (
	// minimumDrain is the pods' MINIMUM_DRAIN_DURATION.
	minimumDrain = 1500 * time.Millisecond

	// endpointLag is how long after its SIGTERM a pod still gets new connections.
	endpointLag = 500 * time.Millisecond

	// slowWork is how long after the SIGTERM the slow requests end.
	slowWork = 3 * time.Second
)

// service is two pods behind a balancer of TCP connections, as behind a Service
// of Kubernetes: new connections go to the old pod until the balancer has learned
// that it ends, then to the young one. Kept connections stay where they are.
type service struct {
	plain, tls string // host:port of the balancer's two ports
	ca         string // file of the authority that the pods' certificate is from

	old, young *pod
	switched   atomic.Bool
	gone       chan struct{} // closed when the old pod has ended

	// crossed counts the connections on which a request and the pod's close met on their way, as the balancer saw it.
	crossed atomic.Int32
}

// startService starts a service of apps behind agents, and ends it with the test.
func startService(t *testing.T, serve func(t *testing.T, s *service, name string) net.Addr) *service {
	t.Helper()
	agent := buildAgent(t)
	s := &service{gone: make(chan struct{})}
	secret, authority := certificatetest.NewSecret(t), certificatetest.New(t)
	secret.Write(authority.Sign("app.test", 0), authority.PEM())
	s.ca = secret.CA()
	s.old = startPod(t, agent, serve(t, s, "old"), secret)
	s.young = startPod(t, agent, serve(t, s, "young"), secret)
	s.plain = s.balance(t, func(p *pod) string { return p.plain })
	s.tls = s.balance(t, func(p *pod) string { return p.tls })
	return s
}

// roll terminates the old pod as its kubelet would, and returns how it went. The
// balancer learns of it late.
func (s *service) roll(ctx context.Context) (podReport, error) {
	if err := s.old.command.Process.Signal(syscall.SIGTERM); err != nil {
		return podReport{}, err
	}
	lag := time.AfterFunc(endpointLag, func() { s.switched.Store(true) })
	defer lag.Stop()
	select {
	case <-s.old.ended:
	case <-ctx.Done():
		return podReport{}, fmt.Errorf("the old pod has not ended: %w", ctx.Err())
	}
	close(s.gone)
	return s.old.report()
}

// balance forwards the connections of a port of its own to the pod of the moment.
func (s *service) balance(t *testing.T, port func(*pod) string) string {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Each(t, ln, func(client net.Conn) {
		p := s.old
		if s.switched.Load() {
			p = s.young
		}
		if forward(t.Context(), client.(*net.TCPConn), port(p)) {
			s.crossed.Add(1)
		}
	})
	return ln.Addr().String()
}

// forward joins two connections until ctx ends; an end continues as an end, a reset as a reset. It reports whether a
// request crossed the server's close.
func forward(ctx context.Context, client *net.TCPConn, addr string) (crossed bool) {
	defer client.Close()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		_ = client.SetLinger(0)
		return false
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var both sync.WaitGroup
	pass := func(to, from *net.TCPConn, latest *time.Time) (ended time.Time) {
		_, err := io.Copy(to, &timed{from, latest})
		ended = time.Now()
		if errors.Is(err, syscall.ECONNRESET) {
			_ = to.SetLinger(0)
			_ = to.Close()
			return ended
		}
		_ = to.CloseWrite()
		return ended
	}
	var request, response, closed time.Time
	both.Go(func() { pass(server, client, &request) })
	both.Go(func() { closed = pass(client, server, &response) })
	both.Wait()
	return request.After(response) && closed.Sub(request) < crossing
}

const (
	// crossing is within which time of the server's close a request is one that the server cannot have read before.
	crossing = 50 * time.Millisecond

	// smallest is the size of a message of HTTP/1.1; a close of TLS has fewer bytes.
	smallest = 64
)

// timed notes when the latest message was read.
type timed struct {
	io.Reader
	latest *time.Time
}

func (r *timed) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n >= smallest {
		*r.latest = time.Now()
	}
	return n, err
}

// pod is an agent of the real program before an app.
type pod struct {
	plain, tls string
	command    *exec.Cmd
	ended      chan struct{}
	failure    error // once ended
	message    string
	output     *logstest.Buffer
}

func (p *pod) addr(t *testing.T) net.Addr {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", p.plain)
	must.Do(t, err)
	return addr
}

func (p *pod) hasLogged(words string) bool { return strings.Contains(p.output.String(), words) }

// podReport has the fields of a termination's report that the tests read.
type podReport struct {
	Verdict string
	Faults  []string
	Open    []json.RawMessage
	Phases  json.RawMessage
	Raced   int
}

func startPod(t *testing.T, agent string, app net.Addr, secret *certificatetest.Secret, env ...string) *pod {
	t.Helper()
	p := &pod{ended: make(chan struct{}), output: new(logstest.Buffer), message: filepath.Join(t.TempDir(), "termination-log")}
	plain, tls, status := freeAddr(t), freeAddr(t), freeAddr(t)
	p.plain, p.tls = plain.String(), tls.String()
	p.command = exec.Command(agent, "agent",
		"--inbound", fmt.Sprintf("%s=%s", p.plain, app),
		"--inbound", fmt.Sprintf("%s=%s,tls-cert=%s,tls-key=%s,tls-alpn=h2+http/1.1", p.tls, app, secret.Cert(), secret.Key()),
		"--status-address", "127.0.0.1", "--status-port", fmt.Sprint(status.Port),
		"--admin-address", "off", "--termination-log", p.message)
	p.command.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION="+minimumDrain.String(), "LASTCALL_QUIET_TIME=500ms",
		"LASTCALL_IDLE_GRACE=500ms", "TERMINATION_GRACE_PERIOD_SECONDS=60", "LASTCALL_WEBSOCKET=close", "LASTCALL_EVENT_STREAMS=close")
	p.command.Env = append(p.command.Env, env...)
	p.command.Stdout, p.command.Stderr = p.output, p.output
	must.Do(t, p.command.Start())
	go func() { defer close(p.ended); p.failure = p.command.Wait() }()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("output of the agent:\n%s", p.output)
		}
	})
	for _, addr := range []string{p.plain, p.tls} {
		awaitListener(t, addr, p.ended, p.output)
	}
	return p
}

func (p *pod) report() (podReport, error) {
	var r podReport
	if p.failure != nil {
		return r, fmt.Errorf("the agent: %w", p.failure)
	}
	b, err := os.ReadFile(p.message)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

// buildAgent builds the program once for all tests.
func buildAgent(t *testing.T) string {
	t.Helper()
	path, err := agentProgram()
	must.Do(t, err)
	return path
}

var agentProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "lastcall")
	build := exec.Command("go", "build", "-C", "../..", "-o", path, "./cmd/lastcall")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build lastcall: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return path, nil
})
