package strategy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

const (
	probeDelay = "/delay/2"             // in flight when the app gets SIGTERM
	probeLook  = 700 * time.Millisecond // after SIGTERM: does it still listen?
	probeLimit = 8 * time.Second        // for the response, and for the exit after it
)

// AppBehaviour is what an app does at SIGTERM.
type AppBehaviour struct {
	SIGTERMBehaviour SIGTERMBehaviour

	// ExitTime is how long it takes to exit with nothing in flight.
	ExitTime time.Duration
}

// TestApp finds out what the app does at SIGTERM, which the expectations depend on. It starts the app, sends a slow request
// and SIGTERM, and observes the app.
func (env *Env) TestApp(ctx context.Context, dir string) (AppBehaviour, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout+probeLimit)
	defer cancel()
	p, err := env.StartPod(ctx, Strategy{Name: "app-test", Sidecar: NoSidecar}, filepath.Join(dir, "app-test"))
	if err != nil {
		return AppBehaviour{}, err
	}
	defer func() { _ = p.App.Kill(); <-p.App.Done() }()
	answered := make(chan error, 1)
	go func() { answered <- get(ctx, "http://"+p.Address+probeDelay) }()
	if err := AwaitInFlight(ctx, map[int]int{p.AppPort: 0}); err != nil {
		return AppBehaviour{}, err
	}
	if err := p.App.Terminate(); err != nil {
		return AppBehaviour{}, err
	}
	if err := ignored(p); err != nil {
		return AppBehaviour{}, err
	}
	if err := node.Sleep(probeLook).Run(ctx); err != nil {
		return AppBehaviour{}, err
	}
	listening, err := p.App.Listening()
	if err != nil {
		return AppBehaviour{}, err
	}
	b := AppBehaviour{SIGTERMBehaviour: ClosesListener}
	err = <-answered
	end := time.Now()
	switch {
	case ctx.Err() != nil:
		return AppBehaviour{}, fmt.Errorf("request %s of the app: %w", probeDelay, context.Cause(ctx))
	case err != nil:
		b.SIGTERMBehaviour = Exits
		return b, nil
	case listening > 0:
		b.SIGTERMBehaviour = KeepsListener
	}
	select {
	case <-p.App.Done():
		b.ExitTime = p.App.Ended().Sub(end)
		return b, nil
	case <-ctx.Done():
		return AppBehaviour{}, fmt.Errorf("wait for the app's exit after SIGTERM: %w", context.Cause(ctx))
	case <-time.After(probeLimit):
	}
	if err := p.App.Kill(); err != nil { // which looks again
		return AppBehaviour{}, err
	}
	if err := ignored(p); err != nil {
		return AppBehaviour{}, err
	}
	return AppBehaviour{}, fmt.Errorf("the app handles SIGTERM, but had not exited %v after its last response: "+
		"end the process when its requests are finished", probeLimit)
}

// ignored is why the app does not end at SIGTERM; nil if it does, or tries to.
func ignored(p *Pod) error {
	if program := p.App.Ignored(); program != "" {
		return errors.New(node.IgnoredCause(program, syscall.SIGTERM))
	}
	return nil
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

const (
	inFlightLimit  = 10 * time.Second
	inFlightPeriod = 5 * time.Millisecond
	settle         = 50 * time.Millisecond // from the app's accept to its handler
)

// AwaitInFlight returns when each app has one more connection than before: the request has arrived. It reads the kernel's
// socket table, so that it works with any app.
func AwaitInFlight(ctx context.Context, before map[int]int) error {
	limit := time.NewTimer(inFlightLimit)
	defer limit.Stop()
	tick := time.NewTicker(inFlightPeriod)
	defer tick.Stop()
	for {
		now, err := node.Established()
		if err != nil {
			return err
		}
		missing := 0
		for port, n := range before {
			if now[port] <= n {
				missing++
			}
		}
		if missing == 0 {
			return node.Sleep(settle).Run(ctx)
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return fmt.Errorf("%d of %d requests did not reach their apps within %v", missing, len(before), inFlightLimit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
