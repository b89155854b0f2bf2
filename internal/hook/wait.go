// Package hook runs a preStop hook: it drains a data plane, and returns when the app may receive its SIGTERM.
package hook

import (
	"context"
	"log/slog"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// assumer is a data plane that cannot prove that a connection is idle. Assumed returns what it has assumed at the end.
type assumer interface{ Assumed() []string }

// Wait returns when the app may receive its SIGTERM: no request is in flight and no new connections arrive, or the
// deadline of c (Until, Within) has come. It logs its progress, and ends the watch of the data plane.
func Wait(ctx context.Context, plane drain.DataPlane, c drain.Config, log *slog.Logger) (drain.Report, error) {
	log.Info("draining", "minimum_drain", c.MinimumDrain.Round(time.Millisecond), "deadline_in", Deadline(c).Round(time.Millisecond))
	// The end of Wait is the app's SIGTERM. The report's trigger stays the hook's.
	signals := make(chan drain.Signal, 1)
	n := narrator{log: log}
	// drain's own lines are Istio's, about a proxy.
	r, err := drain.Termination{
		Plane:   plane,
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
	plane.Kill()
	if a, ok := plane.(assumer); ok && err == nil {
		r.Assumed = append(r.Assumed, a.Assumed()...)
		if r.Verdict == drain.Clean && len(r.Assumed) > 0 {
			r.Verdict = drain.Assumed
		}
	}
	return r, err
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
