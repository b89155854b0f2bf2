package sockets

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// DefaultLeave is the part of the grace period that is left to the app after its SIGTERM: of 30 s, 25 s for its clients
// and 5 s for itself, as in Istio's ambient mode. At most a quarter of the grace period is taken.
const DefaultLeave = 5 * time.Second

// DefaultStreamPause is the default of Options.StreamPause: servers send heartbeats every 15 s (the HTML standard's
// advice for event streams).
const DefaultStreamPause = 15 * time.Second

// Until sets the deadline of a configuration: leave before the end of the grace period.
func Until(c drain.Config, leave time.Duration) drain.Config {
	c.Mode, c.Margin = drain.ExitOnZero, leave
	return c
}

// Within sets the deadline of a configuration to timeout after the start; timeout must be positive.
func Within(c drain.Config, timeout time.Duration) drain.Config {
	c.Mode, c.Margin = drain.ExitOnZero, timeout/3 // a quarter of the whole takes effect
	c.GracePeriod = timeout + c.Margin
	return c
}

// Deadline is the time from the start to the end of a configuration of Until or Within.
func Deadline(c drain.Config) time.Duration { return c.GracePeriod - min(c.Margin, c.GracePeriod/4) }

// Wait returns when the app may receive its SIGTERM: no request is in flight and no new connections arrive, or the
// deadline has come. It logs its progress.
func Wait(ctx context.Context, c drain.Config, o Options) (drain.Report, error) {
	return New(o).wait(ctx, c)
}

func (p *Plane) wait(ctx context.Context, c drain.Config) (drain.Report, error) {
	log := p.o.Log
	opaque := p.o.OpaquePorts
	if p.o.Opaque {
		opaque = p.o.Ports
	}
	log.Info("watching the app's connections", "ports", p.o.Ports, "opaque", opaque, "minimum_drain", c.MinimumDrain, "deadline_in", Deadline(c))
	if listening, err := p.Listening(); err == nil {
		for _, port := range p.o.Ports {
			if !slices.Contains(listening, port) {
				log.Warn("no listener on this port; is it the app's?", "port", port)
			}
		}
	}
	// The end of Wait is the app's SIGTERM. The report's trigger stays the hook's.
	signals := make(chan drain.Signal, 1)
	n := narrator{log: log}
	// drain's own lines are Istio's, about a proxy.
	r, err := drain.Termination{
		Plane:   p,
		Config:  c,
		Trigger: drain.Hook,
		Signals: signals,
		Log:     slog.New(slog.DiscardHandler),
		Watch: drain.Watcher{
			Phase: func(phase drain.Phase) {
				n.enter(phase)
				if phase == drain.Drained {
					signals <- drain.Terminate
				}
			},
			Activity: n.see,
		},
	}.Run(ctx)
	p.Kill()
	if err != nil {
		return r, err
	}
	p.admit(&r)
	return r, nil
}

// admit adds to the report what it assumes: that the app was the last to send on a connection does not prove that its
// response is complete.
func (p *Plane) admit(r *drain.Report) {
	for _, port := range slices.Sorted(maps.Keys(p.assumed)) {
		r.Assumed = append(r.Assumed, fmt.Sprintf("port %d: HTTP/1.1, one request at a time; open connections on which the app was the last to send, taken for idle: %d", port, p.assumed[port]))
	}
	if r.Verdict == drain.Clean && len(r.Assumed) > 0 {
		r.Verdict = drain.Assumed
	}
}

// narrator logs the progress, no more than once a second.
type narrator struct {
	log   *slog.Logger
	phase drain.Phase
	said  time.Time
	busy  int
}

func (n *narrator) enter(p drain.Phase) {
	n.phase = p
	switch p {
	case drain.Waiting:
		n.log.Info("minimum drain complete; waiting for requests in flight")
	case drain.LastCall:
		n.log.Warn("deadline reached; leaving open connections to the app", "busy", n.busy)
	}
}

func (n *narrator) see(a drain.Activity) {
	changed := a.Busy != n.busy
	n.busy = a.Busy
	if now := time.Now(); changed && n.phase == drain.Waiting && now.Sub(n.said) >= time.Second {
		n.said = now
		n.log.Info("in flight", "busy", a.Busy, "open", a.Connections)
	}
}
