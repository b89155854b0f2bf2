package strategy

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

const (
	probeDelay = "/delay/2"             // in flight while the app is told to stop
	probeLook  = 700 * time.Millisecond // after SIGTERM: is its socket still there?
	probeLimit = 8 * time.Second        // for the answer
)

// AppBehaviour are what an app does at SIGTERM.
type AppBehaviour struct {
	SIGTERMBehaviour SIGTERMBehaviour

	// Leaves is how long it takes to end when it has nothing in flight.
	Leaves time.Duration
}

// AppBehaviour finds out what the app does at SIGTERM, since what is to be expected of
// a strategy depends on it: it is started, asked for something slow, told to stop, and
// looked at.
func (env *Env) AppBehaviour(ctx context.Context, dir string) (AppBehaviour, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout+probeLimit)
	defer cancel()
	p, err := env.StartPod(ctx, Strategy{Name: "behaviour", Way: NoSidecar}, filepath.Join(dir, "behaviour"))
	if err != nil {
		return AppBehaviour{}, err
	}
	defer func() { _ = p.App.Kill(); <-p.App.Done() }()
	answered := make(chan error, 1)
	go func() { answered <- ask(ctx, "http://"+p.Address+probeDelay) }()
	if err := AwaitInFlight(ctx, map[int]int{p.AppPort: 0}); err != nil {
		return AppBehaviour{}, err
	}
	if err := p.App.Terminate(); err != nil {
		return AppBehaviour{}, err
	}
	if err := node.Sleep(probeLook).Run(ctx); err != nil {
		return AppBehaviour{}, err
	}
	listening, err := p.App.Listening()
	if err != nil {
		return AppBehaviour{}, err
	}
	h := AppBehaviour{SIGTERMBehaviour: ClosesListener}
	err = <-answered
	end := time.Now()
	switch {
	case ctx.Err() != nil:
		return AppBehaviour{}, fmt.Errorf("ask the app for %s: %w", probeDelay, context.Cause(ctx))
	case err != nil:
		h.SIGTERMBehaviour = Exits
		return h, nil
	case listening > 0:
		h.SIGTERMBehaviour = KeepsListener
	}
	select {
	case <-p.App.Done():
		h.Leaves = p.App.Ended().Sub(end)
		return h, nil
	case <-ctx.Done():
		return AppBehaviour{}, fmt.Errorf("the app did not end after SIGTERM: %w", context.Cause(ctx))
	}
}

func ask(ctx context.Context, url string) error {
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

// AwaitInFlight returns when each app has one connection more than it had: the
// request has arrived. It asks the kernel, so that it works with any app.
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
