package pipe

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// ownTLS is an app that terminates its TLS itself.
type ownTLS struct {
	*http.Server
	ln *keeping
}

// keeping is a listener that keeps its connections for exit.
type keeping struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *keeping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
	}
	return c, err
}

// finish ends the app as a graceful shutdown does.
func (s *ownTLS) finish() { _ = s.Shutdown(context.Background()) }

// exit ends it as the exit of its process does: without a word.
func (s *ownTLS) exit() {
	_ = s.ln.Close()
	s.ln.mu.Lock()
	defer s.ln.mu.Unlock()
	for _, c := range s.ln.conns {
		_ = c.Close()
	}
}

// tlsApp is a Go server with its own TLS. POST /MILLISECONDS is answered after that time.
func tlsApp(t *testing.T, certificate tls.Certificate) (*ownTLS, net.Addr) {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	s := &ownTLS{ln: &keeping{Listener: ln}}
	s.Server = &http.Server{
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			takes, _ := strconv.Atoi(r.URL.Path[1:])
			select {
			case <-time.After(time.Duration(takes) * time.Millisecond):
				_, _ = w.Write(make([]byte, 2000))
			case <-r.Context().Done():
			}
		}),
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ServeTLS(s.ln, "", "") }()
	t.Cleanup(func() { _ = s.Server.Close(); <-done })
	return s, ln.Addr()
}

// rollout ends a pod whose app has its own TLS, while clients keep their connections and send POSTs that cannot be
// repeated; their new connections go to a successor. ended is the app's SIGTERM.
type rollout struct {
	http2         bool
	tls           *tls.Config // of the clients
	app           drain.AppEnd
	ended         func(*ownTLS)
	grace         time.Duration
	pause         time.Duration // of a client between two requests, the mean
	slowest       int           // milliseconds, of one request in ten
	sent, lost    atomic.Int64
	report        drain.Report
	longest, gone time.Duration // after the begin of the drain: the end of the last request at this pod; the pod's
}

// fewest is the smallest of the counts.
func fewest(counts *[24]atomic.Int32) int {
	least := counts[0].Load()
	for i := range counts {
		least = min(least, counts[i].Load())
	}
	return int(least)
}

func (r *rollout) run(t *testing.T) {
	authority := certificatetest.New(t)
	old, at := tlsApp(t, authority.Sign("app.test", 0))
	_, successor := tlsApp(t, authority.Sign("app.test", 0))
	p := startPipe(t, at, Auto, func(cfg *Config) { cfg.AppFinishes = r.app == drain.AppFinishes })

	var draining, stopped atomic.Bool
	var mu sync.Mutex
	var began, longest time.Time
	config := &tls.Config{}
	if r.tls != nil {
		config = r.tls.Clone()
	}
	config.RootCAs, config.ServerName = authority.Pool(), "app.test"
	var clients sync.WaitGroup
	var counts [24]atomic.Int32
	for i := range counts {
		var old atomic.Int32
		transport := &http.Transport{ForceAttemptHTTP2: r.http2, TLSClientConfig: config.Clone(), MaxIdleConnsPerHost: 1, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			to := p.Addr(0)
			if draining.Load() {
				to = successor
				old.Store(0)
			} else {
				old.Store(1)
			}
			return new(net.Dialer).DialContext(ctx, network, to.String())
		}}
		clients.Go(func() {
			defer transport.CloseIdleConnections()
			for !stopped.Load() {
				takes := 20 + rand.IntN(80)
				if rand.IntN(10) == 0 {
					takes = rand.IntN(r.slowest)
				}
				req, _ := http.NewRequest(http.MethodPost, "https://app.test/"+strconv.Itoa(takes), io.NopCloser(bytes.NewReader([]byte("hello"))))
				r.sent.Add(1)
				counts[i].Add(1)
				resp, err := transport.RoundTrip(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if err != nil {
					r.lost.Add(1)
					t.Log(err)
				}
				if old.Load() == 1 {
					mu.Lock()
					longest = time.Now()
					mu.Unlock()
				}
				time.Sleep(time.Duration(rand.ExpFloat64() * float64(r.pause)))
			}
		})
	}
	polltest.Eventually(t, "each client has sent some requests", func() bool { return fewest(&counts) > firstRequest })
	began = time.Now()
	draining.Store(true)
	cfg := drain.DefaultConfig()
	cfg.App, cfg.MinimumDrain, cfg.QuietTime, cfg.IdleGrace, cfg.GracePeriod, cfg.Margin = r.app, 300*time.Millisecond, 200*time.Millisecond, time.Second, r.grace, time.Second
	var stopping sync.WaitGroup
	report, err := drain.Termination{Plane: p, Config: cfg, Log: slog.New(slog.DiscardHandler), Watch: drain.Watcher{Phase: func(now drain.Phase) {
		if now == drain.Finishing {
			stopping.Go(func() { r.ended(old) })
		}
	}}}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.report, r.gone = report, time.Since(began)
	stopped.Store(true)
	clients.Wait()
	stopping.Wait()
	mu.Lock()
	r.longest = longest.Sub(began)
	mu.Unlock()
	t.Logf("%d of %d lost; gone after %v; %s; %+v", r.lost.Load(), r.sent.Load(), r.gone.Round(time.Millisecond), report.Summary(), report.Finish)
}

// crossing is how many of 24 clients may send a request while the end of their idle connection is on its way: Go's client
// cannot send it again. Go's server also refuses a stream that crosses its GOAWAY. On a machine whose processors are busy with
// other tests the end takes longer, and more requests cross it; see tries.
const crossing = 4

// tries is how often a rollout may be repeated. A defect of the pipe loses the requests of each one.
const tries = 5

// Only the app can end its own TLS. One that finishes loses no request.
func TestOwnTLS(t *testing.T) {
	tls12 := &tls.Config{MaxVersion: tls.VersionTLS12}
	for _, c := range []*struct {
		name string
		rollout
		most  int64 // lost
		shows string
	}{
		{name: "finishes, HTTP/1.1", rollout: rollout{app: drain.AppFinishes, ended: (*ownTLS).finish}, most: crossing, shows: "finishes"},
		{name: "finishes, HTTP/2", rollout: rollout{app: drain.AppFinishes, http2: true, ended: (*ownTLS).finish}, most: crossing, shows: "finishes"},
		{name: "auto, finishes, HTTP/2", rollout: rollout{http2: true, ended: (*ownTLS).finish}, most: crossing, shows: "finishes"},
		{name: "auto, exits, HTTP/2", rollout: rollout{http2: true, ended: (*ownTLS).exit}, most: 24, shows: "exits"},
		{name: "exits, HTTP/1.1", rollout: rollout{app: drain.AppExits}, most: crossing},
		{name: "exits, HTTP/1.1 in TLS 1.2", rollout: rollout{app: drain.AppExits, tls: tls12}, most: crossing},
		{name: "auto, HTTP/1.1", rollout: rollout{ended: (*ownTLS).exit}, most: crossing},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &c.rollout
			for try := 1; ; try++ {
				*r = rollout{http2: r.http2, tls: r.tls, app: r.app, ended: r.ended, grace: 12 * time.Second, pause: 300 * time.Millisecond, slowest: 2000}
				r.run(t)
				lost := r.lost.Load()
				if lost <= c.most && r.report.Raced <= 12 { // half of them: the close_notify of a client is no request
					break
				}
				if try == tries {
					t.Errorf("%d requests were lost, and %d counted as raced", lost, r.report.Raced)
					break
				}
			}
			if c.most < 24 && len(r.report.Open) > 0 && c.rollout.ended == nil {
				t.Errorf("the last call has cut %d connections", len(r.report.Open))
			}
			shows := ""
			if r.report.Finish != nil {
				shows = r.report.Finish.App
			}
			if shows != c.shows {
				t.Errorf("the report shows %q, want %q: %+v", shows, c.shows, r.report.Finish)
			}
		})
	}
}
