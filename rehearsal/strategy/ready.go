package strategy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

const (
	readyTimeout = 30 * time.Second      // for a program to listen; a Python app on a busy machine takes seconds
	readyPeriod  = 20 * time.Millisecond // between two probes
	tailBytes    = 2000                  // of a log in an error
)

// awaitPort is a tcpSocket readiness probe.
func awaitPort(ctx context.Context, p *node.Process, port int, log string) error {
	return await(ctx, p, log, fmt.Sprintf("listen on port %d", port), func() bool {
		c, err := net.DialTimeout("tcp", node.Loopback(port), time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// awaitReady is an httpGet readiness probe: a status below 400 is a success.
func awaitReady(ctx context.Context, p *node.Process, url, log string) error {
	return awaitHTTP(ctx, p, url, log, "be ready at", http.StatusBadRequest)
}

// awaitHTTP waits for a status below a limit.
func awaitHTTP(ctx context.Context, p *node.Process, url, log, verb string, below int) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return await(ctx, p, log, verb+" "+url, func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode < below
	})
}

// await probes until the probe succeeds, the process ends or the time runs out.
func await(ctx context.Context, p *node.Process, log, what string, probe func() bool) error {
	within, stop := context.WithTimeout(ctx, readyTimeout)
	defer stop()
	isReady := false
	err := poll.Until(within, readyPeriod, func() bool {
		isReady = probe()
		return isReady || p.HasEnded()
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("did not %s within %v%s", what, readyTimeout, tail(log))
	case p.HasEnded() && isReady:
		return errors.New("exited at once: another program uses its port" + tail(log))
	case p.HasEnded():
		return fmt.Errorf("exited (%s) before it could %s%s", p.Ending(), what, tail(log))
	}
	return nil
}

// tail is the end of a log, for an error message.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil || len(data) == 0 {
		return ""
	}
	if len(data) > tailBytes {
		data = data[len(data)-tailBytes:]
	}
	return "; its log:\n" + printable.Lines(strings.TrimSpace(string(data)))
}
