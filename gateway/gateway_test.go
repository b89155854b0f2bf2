package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; only a failure takes it.
const patience = 10 * time.Second

// lines is a writer that hands out what was written.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func (l lines) next(t *testing.T) string {
	t.Helper()
	select {
	case s := <-l:
		return s
	case <-time.After(patience):
		t.Fatal("no line came")
		return ""
	}
}

// until returns the first line with all of parts.
func (l lines) until(t *testing.T, parts ...string) string {
	t.Helper()
	for {
		s := l.next(t)
		all := true
		for _, p := range parts {
			all = all && strings.Contains(s, p)
		}
		if all {
			return s
		}
	}
}

// setup is what a test's gateway is started with.
type setup struct {
	Endpoints      []string
	EndpointsFile  string // in place of Endpoints
	Protocol       Protocol
	Certificates   []tls.Certificate
	Shown          *Certificates // in place of one made for Certificates
	RequestTimeout time.Duration
	MaxAttempts    int
	MaxPerEndpoint int
	MaxConnections int
	TrustedHops    int
	Termination    Termination // zero: no load balancer, 30 s
	Source         Source      // in place of all endpoints
}

// always is a Fallback.
func always(c *tls.Certificate) Fallback {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c, nil }
}

// static is a Source that has nothing to follow.
type static struct{}

func (static) Pending() string { return "" }

func (static) Run(ctx context.Context, synced func()) error {
	synced()
	<-ctx.Done()
	return nil
}

type running struct {
	*Gateway
	pool    *Pool // of setup.Endpoints
	addr    string
	admin   string
	access  lines
	log     lines
	cert    tls.Certificate
	signals chan drain.Signal
	stop    func()
	done    chan drain.Report
}

// start runs a gateway to the end of the test, on loopback.
func start(t *testing.T, o setup) *running {
	t.Helper()
	r := &running{access: make(lines, 4096), log: make(lines, 4096), done: make(chan drain.Report, 1), signals: make(chan drain.Signal, 4)}
	g, err := New(Options{
		AccessLog: r.access, RequestTimeout: o.RequestTimeout, MaxAttempts: o.MaxAttempts,
		MaxPerEndpoint: o.MaxPerEndpoint, TrustedHops: o.TrustedHops,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := RunOptions{HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Source: o.Source, Termination: o.Termination, Signals: r.signals, MaxConnections: o.MaxConnections}
	if run.Termination == (Termination{}) {
		none, err := PresetNamed("none", 0)
		if err != nil {
			t.Fatal(err)
		}
		run.Termination = none.Termination(30 * time.Second)
	}
	if len(o.Certificates) > 0 {
		r.cert = o.Certificates[0]
		run.HTTP, run.HTTPS, run.Certificates = "", "127.0.0.1:0", o.Shown
		if run.Certificates == nil {
			run.Certificates = new(Certificates)
		}
		run.Certificates.Set(nil, always(&r.cert))
	}
	switch {
	case o.EndpointsFile != "":
		file, err := FollowFile(g, o.EndpointsFile, o.Protocol)
		if err != nil {
			t.Fatal(err)
		}
		run.Source, r.pool = file, file.pool
	case run.Source == nil:
		r.pool = g.NewPool("")
		if err := r.pool.Set(o.Endpoints, o.Protocol); err != nil {
			t.Fatal(err)
		}
		g.SetRoutes(Default(r.pool))
		run.Source = static{}
	}
	listening := make(chan struct{})
	run.Listening = func(http, https, admin net.Addr) {
		if http == nil {
			http = https
		}
		r.addr, r.admin = http.String(), admin.String()
		close(listening)
	}
	r.Gateway = g
	ctx, kill := context.WithCancel(context.Background())
	go func() {
		report, err := g.Run(ctx, run)
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		r.done <- report
	}()
	r.stop = sync.OnceFunc(func() { r.signals <- drain.Terminate })
	t.Cleanup(func() {
		defer kill()
		if r.pool != nil {
			defer r.pool.Close()
		}
		r.stop()
		select {
		case <-r.done:
		case <-time.After(patience):
			t.Error("Run has not ended")
		}
	})
	select {
	case <-listening:
	case <-time.After(patience):
		t.Fatal("it does not serve")
	}
	r.log.until(t, "gateway is serving")
	return r
}

// ended is the report, once the gateway has ended.
func (r *running) ended(t *testing.T) drain.Report {
	t.Helper()
	report := within(t, "end of the gateway", r.done)
	r.done <- report // for the cleanup
	return report
}

// client speaks HTTP/1.1 or HTTP/2 to the gateway.
func (r *running) client(t *testing.T, h2 bool) (*http.Client, string) {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	url := "http://" + r.addr
	if r.cert.Leaf != nil {
		pool := x509.NewCertPool()
		pool.AddCert(r.cert.Leaf)
		tr.TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "shop.example"}
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetHTTP1(!h2)
		tr.Protocols.SetHTTP2(h2)
		url = "https://" + r.addr
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}, url
}

func selfSigned(t *testing.T) []tls.Certificate {
	t.Helper()
	cert := certificatetest.SelfSigned(t, "shop.example", "127.0.0.1")
	return []tls.Certificate{cert}
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func readResponse(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}
