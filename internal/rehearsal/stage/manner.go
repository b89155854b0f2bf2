package stage

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/lastcall-dev/lastcall/internal/rehearsal/node"
)

const (
	mannerDelay = "/delay/2"             // in flight while the app is told to stop
	mannerLook  = 700 * time.Millisecond // after SIGTERM: is its socket still there?
	mannerLimit = 8 * time.Second        // for the answer
)

// Manner finds out what the app does at SIGTERM, since what is to be expected of
// a strategy depends on it: it is started, asked for something slow, told to stop, and
// looked at.
func (t *Theatre) Manner(ctx context.Context, dir string) (Manner, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout+mannerLimit)
	defer cancel()
	p, err := t.StartPod(ctx, Strategy{Name: "manner", Way: NoSidecar}, filepath.Join(dir, "manner"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.App.Kill(); <-p.App.Done() }()
	answered := make(chan error, 1)
	go func() { answered <- ask(ctx, "http://"+p.Address+mannerDelay) }()
	if err := AwaitInFlight(ctx, map[int]int{p.AppPort: 0}); err != nil {
		return 0, err
	}
	if err := p.App.Terminate(); err != nil {
		return 0, err
	}
	if err := node.Sleep(mannerLook).Run(ctx); err != nil {
		return 0, err
	}
	listening, err := p.App.Listening()
	if err != nil {
		return 0, err
	}
	switch err := <-answered; {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("ask the app for %s: %w", mannerDelay, context.Cause(ctx))
	case err != nil:
		return Exits, nil
	case listening > 0:
		return Keeps, nil
	}
	return Closes, nil
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
