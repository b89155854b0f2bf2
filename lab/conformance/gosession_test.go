package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// The session of Go's own client, which knows no retry of a POST.
func TestGoSessionsAcrossADrain(t *testing.T) {
	for _, tt := range []struct {
		name      string
		protocols func(*http.Protocols)
		tls       bool
		h2        bool
	}{
		{"HTTP1", func(p *http.Protocols) { p.SetHTTP1(true) }, false, false},
		{"HTTP1 TLS", func(p *http.Protocols) { p.SetHTTP1(true) }, true, false},
		{"h2c by prior knowledge", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, false, true},
		{"h2 by ALPN", func(p *http.Protocols) { p.SetHTTP2(true) }, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSession(3)
			service := startService(t, s.app)
			ca, err := os.ReadFile(service.ca)
			must.Do(t, err)
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(ca)
			transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 8}
			tt.protocols(transport.Protocols)
			defer transport.CloseIdleConnections()
			url := "http://" + service.plain
			if tt.tls {
				url = "https://" + service.tls
			}
			c := goClient{t, &http.Client{Transport: transport}, url}
			over := make(chan struct{})
			go func() { defer close(over); c.session() }()
			s.rollWhenReady(t, service)
			<-over
			if h1, h2 := s.h1.Load(), s.h2.Load(); (h2 > 0) != tt.h2 || (h1 > 0) == tt.h2 {
				t.Errorf("%d requests of HTTP/1.1, %d of HTTP/2", h1, h2)
			}
		})
	}
}

// goClient makes the requests that session knows.
type goClient struct {
	t   *testing.T
	c   *http.Client
	url string
}

func (g goClient) session() {
	var first sync.WaitGroup
	for range 8 {
		first.Go(func() { g.ask("GET", "/next", "") })
	}
	first.Wait()
	content := strings.Repeat("x", 3000)
	var enough atomic.Bool
	var all sync.WaitGroup
	for _, pause := range []time.Duration{5, 50, 400, 1900} {
		all.Go(func() {
			for !enough.Load() && !g.t.Failed() {
				if g.ask("GET", "/next", "") == "enough" {
					enough.Store(true)
				}
				if g.ask("POST", "/echo", content) != content {
					g.t.Error("another body came back")
				}
				time.Sleep(pause * time.Millisecond) // the client's other work
			}
		})
	}
	all.Go(func() {
		if got := g.ask("GET", "/slow", ""); got != "slow" {
			g.t.Errorf("GET /slow: %q", got)
		}
	})
	all.Go(func() {
		if g.ask("POST", "/slow", content) != content {
			g.t.Error("POST /slow: another body came back")
		}
	})
	all.Go(func() {
		if got := g.ask("GET", "/drip", ""); !strings.HasSuffix(got, "drip\nend\n") {
			g.t.Errorf("GET /drip: %q", got)
		}
	})
	all.Wait()
}

func (g goClient) ask(method, path, content string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	resp, err := sendOnce(ctx, g.c.Do, method, g.url+path, content)
	if err != nil {
		g.t.Errorf("%s %s: %v", method, path, err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		g.t.Errorf("%s %s: %d, %v", method, path, resp.StatusCode, err)
	}
	return string(body)
}

// sendOnce makes a request with a body that net/http cannot repeat. A GOAWAY between net/http's choice of the connection
// and the request's first byte makes net/http close the body, and then report that it cannot rewind it. No request was
// sent then, and the next connection gets it.
func sendOnce(ctx context.Context, do func(*http.Request) (*http.Response, error), method, url, content string) (*http.Response, error) {
	for {
		unsent := &untouched{Reader: strings.NewReader(content)}
		r, err := http.NewRequestWithContext(ctx, method, url, io.NopCloser(unsent))
		if err != nil {
			return nil, err
		}
		if r.ContentLength = int64(len(content)); content == "" {
			r.Body = nil
		}
		resp, err := do(r)
		if err == nil || unsent.read.Load() || content == "" || !strings.Contains(err.Error(), "cannot rewind body") {
			return resp, err
		}
	}
}

// untouched notes whether anything of it has been read.
type untouched struct {
	io.Reader
	read atomic.Bool
}

func (u *untouched) Read(p []byte) (int, error) {
	u.read.Store(true)
	return u.Reader.Read(p)
}
