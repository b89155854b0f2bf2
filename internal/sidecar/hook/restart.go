package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
)

// The kubelet runs a preStop hook when the pod ends, and also when it restarts the container because the app has failed
// its liveness or startup probe. In the second case there is nothing to wait for. The hook distinguishes the two by the
// probe itself: the kubelet no longer runs it in a pod that ends, so there the app was healthy when the hook began.

// App has the probes for which the kubelet restarts the app's container; nil: none.
type App struct {
	Liveness *probe.Probe `json:"liveness,omitempty"`
	Startup  *probe.Probe `json:"startup,omitempty"`
}

// ParseApp reads an App as JSON. An empty text has no probes.
func ParseApp(text string) (*App, error) {
	if text == "" {
		return nil, nil
	}
	var a App
	err := json.Unmarshal([]byte(text), &a)
	for _, p := range []*probe.Probe{a.Liveness, a.Startup} {
		if p != nil && err == nil {
			err = p.Validate()
		}
	}
	if err == nil && a.Liveness == nil && a.Startup == nil {
		err = errors.New("there is neither liveness nor startup")
	}
	if err != nil {
		return nil, fmt.Errorf(`%w; must be {"liveness": {"httpGet": {"path": "/", "port": 8080}}, "startup": …}`, err)
	}
	return &a, nil
}

const (
	// firstChecks is the time in which the hook begins as many checks as the threshold has, when it begins. The kubelet
	// has made its own before, with the whole period between them.
	firstChecks = 300 * time.Millisecond

	defaultPeriod    = 10 * time.Second // Kubernetes' periodSeconds
	defaultThreshold = 3                // Kubernetes' failureThreshold
	mostFirstChecks  = 10
)

// awaitFailure returns the error of a probe that has failed as often as its threshold; nil if ctx ends before.
//
// A refused connection is not enough: an app may close its listener when it notices the end of the pod, and still
// answer on open connections. Nor is the startup probe, which may fail once the app has started. Both count only while
// the app has no connection, so that an early end loses nothing.
func (a *App) awaitFailure(ctx context.Context, isAlone func() bool) error {
	p, isCertain := a.Liveness, true
	if p == nil {
		p, isCertain = a.Startup, false
	}
	threshold, period := p.FailureThreshold, time.Duration(p.PeriodSeconds)*time.Second
	if threshold <= 0 {
		threshold = defaultThreshold
	}
	if period <= 0 {
		period = defaultPeriod
	}
	counts := func(err error) bool {
		return err != nil && ctx.Err() == nil && (isCertain && !errors.Is(err, syscall.ECONNREFUSED) || isAlone())
	}
	if err := checkOften(ctx, p, min(threshold, mostFirstChecks)); counts(err) {
		return err
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for failed := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := p.Check(ctx)
		if failed++; err == nil {
			failed = 0
		}
		if failed >= threshold && counts(err) {
			return err
		}
	}
}

// checkOften runs a probe n times, one a little after the other, and returns nil as soon as one succeeds.
func checkOften(ctx context.Context, p *probe.Probe, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, n)
	for i := range n {
		go func() {
			timer := time.NewTimer(firstChecks / time.Duration(n) * time.Duration(i))
			defer timer.Stop()
			select {
			case <-timer.C:
				results <- p.Check(ctx)
			case <-ctx.Done():
				results <- ctx.Err()
			}
		}()
	}
	var last error
	isHealthy := false
	for range n { // each, so that none outlives this
		if err := <-results; err == nil {
			isHealthy = true
			cancel()
		} else if !isHealthy {
			last = err
		}
	}
	if isHealthy {
		return nil
	}
	return last
}
