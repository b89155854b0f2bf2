package lastcall

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// run waits for the signal that begins the termination, and takes the planes through it.
func (s *settings) run(ctx context.Context, planes []drain.DataPlane,
	requests *drain.Requests) (report Report, err error) {
	// No client connects to a worker: none has to learn that the pod ends.
	if !slices.ContainsFunc(planes, func(p drain.DataPlane) bool { _, isWorker := p.(*Worker); return !isWorker }) {
		s.config.MinimumDrain, s.config.QuietTime, s.drainedByHook = 0, 0, false
	}
	for _, c := range s.config.Contradictions() {
		s.log.Warn("timers contradict each other", "problem", c)
	}
	plane := &monitored{DataPlane: drain.Join(planes...), status: new(status)}
	served, err := s.serveSides(plane.status, requests)
	if err != nil {
		plane.Kill()
		return Report{}, err
	}
	defer served()
	background := s.startBackground(ctx)
	defer func() {
		began := report.Began
		if began.IsZero() {
			began = time.Now()
		}
		err = errors.Join(err, background.stop(began.Add(s.config.GracePeriod-stopMargin)))
	}()
	for {
		report, err = s.terminate(ctx, plane, planes, requests, background.failed)
		if err != nil {
			plane.Kill()
			return report, err
		}
		report.Publish(s.log, s.message)
		if report.Verdict != drain.Resumed {
			return report, nil
		}
	}
}

// terminate is one termination: from the signal that begins it to the end, or until the drain is cancelled.
func (s *settings) terminate(ctx context.Context, plane *monitored, planes []drain.DataPlane, requests *drain.Requests,
	failed <-chan struct{}) (Report, error) {
	trigger := s.await(ctx, plane, planes, requests, failed)
	config := s.timers(trigger, plane)
	log := s.log.Info
	if trigger == drain.ServerEnded || trigger == drain.BackgroundFailed {
		log = s.log.Warn
	}
	log("draining", "trigger", trigger.String(), "minimum_drain", config.MinimumDrain, "quiet_time", config.QuietTime,
		"grace_period", config.GracePeriod)
	report, err := drain.Termination{
		Plane:    plane,
		Config:   config,
		Trigger:  trigger,
		Requests: requests,
		Log:      s.log,
		IstioLog: slog.New(slog.DiscardHandler), // the report has it in the library's words
		Watch:    drain.Watcher{Phase: plane.status.enter},
	}.Run(context.WithoutCancel(ctx))
	if trigger == drain.ServerEnded {
		report.Verdict = drain.Crashed
	}
	return report, err
}

// await serves until a termination is requested: by a signal, a plane that ends by itself, or a background function
// that fails.
func (s *settings) await(ctx context.Context, plane *monitored, planes []drain.DataPlane, requests *drain.Requests,
	failed <-chan struct{}) (trigger drain.Signal) {
	ended := make(chan struct{}, len(planes))
	over := make(chan struct{})
	defer close(over)
	for _, p := range planes {
		go func() {
			select {
			case <-p.Exited():
				ended <- struct{}{}
			case <-over:
			}
		}()
	}
	var look <-chan time.Time
	if s.drainedByHook {
		ticker := time.NewTicker(max(s.config.QuietTime/4, 10*time.Millisecond))
		defer ticker.Stop()
		look = ticker.C
		plane.look(ctx)
	}
	for {
		now, changed := requests.Look()
		if now.Begun {
			return now.First
		}
		select {
		case <-changed:
		case <-ended:
			requests.Send(drain.ServerEnded)
		case <-failed:
			requests.Send(drain.BackgroundFailed)
		case <-look:
			plane.look(ctx)
		}
	}
}

// timers returns the configuration of a termination that trigger begins.
func (s *settings) timers(trigger drain.Signal, plane *monitored) drain.Config {
	c := s.config
	switch {
	case trigger == drain.Interrupt, trigger == drain.ShutdownCalled: // after that, no client can connect
		return c.AtOnce()
	case s.drainedByHook && trigger != drain.Hook:
		plane.look(context.Background())
		quiet := time.Since(plane.lastArrival) // at least
		if quiet >= c.QuietTime {
			s.log.Info("drained by the preStop hook before SIGTERM", "last_arrival", quiet.Round(time.Millisecond))
			return c.AtOnce()
		}
		s.log.Warn("requests still arrive although a preStop hook should have drained the pod; draining as usual. "+
			"Unset LASTCALL_DRAINED_BY_HOOK if there is no such hook", "last_arrival", quiet.Round(time.Millisecond))
	}
	return c
}

// monitored is the plane that is drained. It ends the readiness with the listeners, and remembers when
// the last client arrived. look is called while no termination is in progress.
type monitored struct {
	drain.DataPlane
	status *status

	arrivals    uint64
	lastArrival time.Time
}

// look notes whether clients have arrived since the last look. When that is unknown, they have.
func (m *monitored) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	a, err := m.Activity(ctx)
	if err != nil || !a.Known || a.Arrivals != m.arrivals || m.lastArrival.IsZero() {
		m.lastArrival = time.Now()
	}
	m.arrivals = a.Arrivals
}

// Cut implements drain.Cutter.
func (m *monitored) Cut() []drain.Conversation {
	if c, ok := m.DataPlane.(drain.Cutter); ok {
		return c.Cut()
	}
	return nil
}

func (m *monitored) StopAccepting(ctx context.Context) error {
	m.status.setReady(false)
	return m.DataPlane.StopAccepting(ctx)
}

func (m *monitored) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	m.status.setReady(false)
	return m.DataPlane.LastCall(ctx, window)
}

func (m *monitored) Close(ctx context.Context) error {
	m.status.setReady(false)
	return m.DataPlane.Close(ctx)
}

func (m *monitored) Resume(ctx context.Context) error {
	err := m.DataPlane.Resume(ctx)
	if err == nil {
		m.status.setReady(true)
	}
	return err
}

// receiveSignals sends requests what signals, those of the caller, and the end of the context request, until stop is
// called.
func (s *settings) receiveSignals(ctx context.Context) (requests *drain.Requests, stop func()) {
	requests = new(drain.Requests)
	over := make(chan struct{})
	own := make(chan os.Signal, 16)
	if s.signals == nil {
		signal.Notify(own, syscall.SIGTERM, os.Interrupt)
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		ended := ctx.Done()
		for {
			select {
			case sig := <-own:
				if sig == os.Interrupt {
					requests.Send(drain.Interrupt)
				} else {
					requests.Send(drain.Terminate)
				}
			case sig := <-s.signals:
				requests.Send(sig)
			case <-ended:
				ended = nil
				requests.Send(drain.ContextEnded)
			case <-over:
				return
			}
		}
	})
	return requests, func() {
		signal.Stop(own)
		close(over)
		receiving.Wait()
	}
}
