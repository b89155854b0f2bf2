package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// alive checks that the data plane and the status port respond, for a watchdog.
func (a *agent) alive(ctx context.Context) error {
	switch activity, err := a.plane.Activity(ctx); {
	case err != nil:
		return fmt.Errorf("check the data plane: %w", err)
	case !activity.Known:
		return errors.New("check the data plane: its activity is unknown")
	}
	return a.status.alive(ctx)
}

// aliveTransport connects to loopback in IPv4 and IPv6 pods.
var aliveTransport = &http.Transport{DialContext: tcp.DialLoopback, DisableKeepAlives: true}

// alive sends the status port a request as any client does.
func (s *status) alive(ctx context.Context) error {
	_, port, err := net.SplitHostPort(s.address.String())
	if err != nil {
		return err
	}
	host := s.a.Status.Address
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz/ready",
		nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := aliveTransport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("check the status server: %w", err)
	}
	return resp.Body.Close() // a 503 is fine: the app may still be starting
}
