package conformance

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// Real clients whose requests are in flight, or queued behind them, when the drain begins: none fails, and the pipe
// ends by itself.
func TestToolsAcrossADrain(t *testing.T) {
	for _, tt := range []struct {
		name string
		peer string
		args []string
		good func(out string) error
		tls  bool
	}{
		{"nghttp, 50 requests at once", "nghttp", []string{"-n", "-s", "-m", "50"}, statuses(50), false},
		{"nghttp by ALPN", "nghttp", []string{"-n", "-s", "-m", "50"}, statuses(50), true},
		{"curl, one after another", "curl", []string{"--http2-prior-knowledge", "-sS", "-m", "20", "-w", "%{http_code}\n", "-o", "/dev/null", "URL", "-o", "/dev/null"}, lines("200", 2), false},
		{"curl over HTTP/1.1", "curl", []string{"--http1.1", "-sS", "-m", "20", "-w", "%{http_code} %{http_version}\n", "-o", "/dev/null", "URL", "-o", "/dev/null"}, lines("200 1.1", 2), false},
		{"curl, Upgrade declined", "curl", []string{"--http2", "-sS", "-m", "20", "-w", "%{http_code} %{http_version}\n", "-o", "/dev/null", "URL", "-o", "/dev/null"}, lines("200 1.1", 2), false},
		{"curl by ALPN", "curl", []string{"--http2", "-k", "-sS", "-m", "20", "-w", "%{http_code} %{http_version}\n", "-o", "/dev/null", "URL", "-o", "/dev/null"}, lines("200 2", 2), true},
		// h2load opens no other connection after a GOAWAY and counts as failed what it has not begun: what it has, succeeds.
		{"h2load", "h2load", []string{"-n", "400", "-c", "4", "-m", "10"}, begun, false},
		{"h2load by ALPN", "h2load", []string{"-n", "400", "-c", "4", "-m", "10"}, begun, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			program := peers.Need(t, tt.peer)
			var requests atomic.Int64
			app := serveGo(t, h2cUpgrade(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				select {
				case <-time.After(20 * time.Millisecond): // what the app does
				case <-r.Context().Done():
				}
				fmt.Fprint(w, page)
			})))
			p, url := startPipe(t, app), "http://"
			if tt.tls {
				p, url = startPipe(t, app, secured(t)), "https://"
			}
			url += p.Addr(0).String() + "/"
			args := append([]string{}, tt.args...)
			for i := range args {
				if args[i] == "URL" {
					args[i] = url
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			command := exec.CommandContext(ctx, program, append(args, url)...)
			var out bytes.Buffer
			command.Stdout, command.Stderr = &out, &out
			must.Do(t, command.Start())
			polltest.Eventually(t, "a request", func() bool { return requests.Load() > 0 })
			must.Do(t, p.Drain(ctx))
			if err := command.Wait(); err != nil {
				t.Errorf("%v\n%s", err, &out)
			} else if err := tt.good(out.String()); err != nil {
				t.Errorf("%v:\n%s", err, &out)
			}
			ended(t, p)
		})
	}
}

// ended closes an unused pipe.
func ended(t *testing.T, p *pipe.Pipe) {
	t.Helper()
	awaitIdle(t, p)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Truncated > 0 || s.Raced > 0 || s.Responses[5] > 0 {
		t.Errorf("%+v", s)
	}
}

var h2loadCounts = regexp.MustCompile(`(\d+) started, \d+ done, (\d+) succeeded`)

func begun(out string) error {
	counts := h2loadCounts.FindStringSubmatch(out)
	if counts == nil || counts[1] == "0" || counts[1] != counts[2] {
		return fmt.Errorf("not all that it has begun succeeded")
	}
	return nil
}

func statuses(n int) func(string) error {
	ok := regexp.MustCompile(`(?m)^\s*\d+\s+\S+\s+\S+\s+\S+\s+200\s`)
	return func(out string) error {
		if got := len(ok.FindAllString(out, -1)); got != n {
			return fmt.Errorf("%d of %d have 200", got, n)
		}
		return nil
	}
}

func lines(line string, n int) func(string) error {
	return func(out string) error {
		if out != strings.Repeat(line+"\n", n) {
			return fmt.Errorf("not %d times %s", n, line)
		}
		return nil
	}
}
