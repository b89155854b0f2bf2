package envoy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Admin is Envoy's admin API.
type Admin struct {
	address string
	base    string
	dial    func(ctx context.Context) (net.Conn, error)
	client  *http.Client
}

// NewAdmin is the admin API at an address: host:port (IPv4 or IPv6), or unix:PATH.
func NewAdmin(at string) (*Admin, error) {
	network, target := "tcp", at
	base := "http://" + at
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		network, target, base = "unix", path, "http://envoy"
	} else if _, err := address(at); err != nil {
		return nil, fmt.Errorf("address of Envoy's admin %q: must be host:port or unix:PATH, such as 127.0.0.1:15000", at)
	}
	dial := func(ctx context.Context) (net.Conn, error) { return tcp.DialLoopback(ctx, network, target) }
	return &Admin{
		address: at,
		base:    base,
		dial:    dial,
		client: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			// A connection to the admin API counts in Envoy's own numbers and is cheap on loopback: none is kept.
			DisableKeepAlives: true,
		}},
	}, nil
}

// maxResponse bounds a response, bytes. The largest is the dump of a few thousand listeners.
const maxResponse = 256 << 20

func (a *Admin) call(ctx context.Context, method, path string) ([]byte, error) {
	resp, err := a.do(ctx, method, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("envoy's admin at %s: %s %s: read the response: %w", a.address, method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return body, fmt.Errorf("envoy's admin: %s %s: unexpected status %d: %.200s", method, path, resp.StatusCode,
			bytes.TrimSpace(body))
	}
	return body, nil
}

// do is call for a response that is read as a stream.
func (a *Admin) do(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("envoy's admin: %w", err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // our error names the URL
		}
		return nil, fmt.Errorf("envoy's admin at %s: %s %s: %w", a.address, method, path, err)
	}
	return resp, nil
}

// Ready is nil when Envoy serves: it is LIVE, or DRAINING because /healthcheck/fail was called.
func (a *Admin) Ready(ctx context.Context) error {
	body, err := a.call(ctx, http.MethodGet, "/ready")
	if bytes.HasPrefix(body, []byte("DRAINING")) {
		return nil
	}
	return err
}

// exitPoll is how often QuitAndWait looks for an Envoy that has closed its connections and has not exited.
const exitPoll = 20 * time.Millisecond

// QuitAndWait makes Envoy exit, and returns when it has, or when ctx ends. A connection from before reports the exit.
func (a *Admin) QuitAndWait(ctx context.Context) error {
	watch, err := a.dial(ctx)
	if err != nil {
		return fmt.Errorf("envoy's admin at %s: %w", a.address, err)
	}
	defer watch.Close()
	defer context.AfterFunc(ctx, func() { _ = watch.Close() })()
	if err := a.Post(ctx, pathQuit); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, watch)
	_ = poll.Until(ctx, exitPoll, func() bool { return a.Ready(ctx) != nil })
	return nil
}

// pathQuit makes Envoy exit; it flushes its logs and stats first.
const pathQuit = "/quitquitquit"

// Post calls a command of the admin API.
func (a *Admin) Post(ctx context.Context, path string) error {
	_, err := a.call(ctx, http.MethodPost, path)
	return err
}

// Stats reads the stats whose names match filter (RE2, anywhere in the name), as text. usedOnly omits those that were
// never written; gauges omits all but gauges, which saves Envoy most of the work where there are thousands of clusters.
func (a *Admin) Stats(ctx context.Context, filter string, usedOnly, gauges bool) ([]byte, error) {
	path := "/stats?"
	if usedOnly {
		path += "usedonly&"
	}
	if gauges {
		path += "type=Gauges&"
	}
	return a.call(ctx, http.MethodGet, path+"filter="+url.QueryEscape(filter))
}

// await polls until Envoy serves, or ctx or exited ends it.
func (a *Admin) await(ctx context.Context, log *slog.Logger, exited <-chan struct{}) error {
	var why error
	var throttle logs.Throttle
	hasExited := false
	late := poll.Until(ctx, readyPoll, func() bool {
		err := a.Ready(ctx)
		if err == nil {
			why = nil
			return true
		}
		if why == nil || ctx.Err() == nil {
			why = err // not merely that the time has passed
		}
		until, _ := ctx.Deadline()
		throttle.Log(log, slog.LevelInfo, announceAgain, "waiting for Envoy to become ready", "admin", a.address,
			"at_most", time.Until(until).Round(time.Second), "error", why)
		select {
		case <-exited:
			hasExited = true
		default:
		}
		return hasExited
	})
	switch {
	case hasExited:
		return errors.New("envoy exited before it was ready")
	case late != nil:
		return fmt.Errorf("envoy does not become ready: %w", cmp.Or(why, late))
	}
	return nil
}

const (
	readyPoll     = 5 * time.Millisecond
	announceAgain = 10 * time.Second
)
