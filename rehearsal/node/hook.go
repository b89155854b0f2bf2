package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Hook is a preStop hook. Run returns when it has ended; ctx ends when its container has, which ends the hook.
type Hook interface {
	Run(ctx context.Context) error
}

// Sleep is the sleep action.
type Sleep time.Duration

// Run waits.
func (s Sleep) Run(ctx context.Context) error {
	t := time.NewTimer(time.Duration(s))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// HTTPGet is the httpGet action: a status below 400 is a success.
type HTTPGet string

// Run sends the request.
func (h HTTPGet) Run(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, string(h), nil)
	if err != nil {
		return fmt.Errorf("preStop httpGet: %w", err)
	}
	// Close the connection: a kept-alive one would hold the pod open.
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("preStop httpGet %s: %w", h, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("preStop httpGet %s: %w", h, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("preStop httpGet %s: status %d", h, resp.StatusCode)
	}
	return nil
}

// Exec is the exec action: another program in the container.
type Exec struct {
	Node    *Node
	Command Command
}

// Run starts the program and waits for its end; anything but exit 0 is an error.
func (e Exec) Run(ctx context.Context) error {
	p, err := e.Node.Start(e.Command)
	if err != nil {
		return fmt.Errorf("preStop exec: %w", err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Kill() // it ends with its container
	}
	if ending := p.Ending(); ending != "exit 0" {
		return fmt.Errorf("preStop exec %s: %s", e.Command.Args[0], ending)
	}
	return nil
}

// Func is a hook of the rehearsal itself.
type Func func(ctx context.Context) error

// Run calls f.
func (f Func) Run(ctx context.Context) error { return f(ctx) }
