package peers

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Contour's shutdown manager, projectcontour/contour,
// cmd/contour/shutdownmanager.go, with the defaults of its flags and of
// examples/contour/03-envoy.yaml, where Envoy is started without drain flags.
const (
	contourCheckDelay   = 0               // --check-delay (60 s in its first releases)
	contourPoll         = 5 * time.Second // --check-interval
	contourMinimumOpen  = 0               // --min-open-connections
	contourReadyPoll    = time.Second     // shutdownReadyCheckInterval
	contourDrainTries   = 4               // of /healthcheck/fail
	contourDrainBackOff = 200 * time.Millisecond
	contourBackOffBy    = 5 // each pause is this many times the one before
	contourGrace        = 300 * time.Second
)

func contour() []Peer {
	return []Peer{{
		Name: "contour", Source: "projectcontour/contour, cmd/contour/shutdownmanager.go",
		Words: "shutdown manager: counts connections every 5 s, no minimum and no deadline; the hook polls every second",
		form:  managed, app: strategy.ClosesListener, grace: contourGrace,
		manager: func() hooks {
			var ready atomic.Bool // the file /admin/ok
			return hooks{
				manager: func(ctx context.Context, a admin) {
					if contourShutdown(ctx, a) {
						ready.Store(true)
					}
				},
				envoy: func(ctx context.Context) { awaitSign(ctx, &ready, contourReadyPoll) },
			}
		},
		expect: expectContour,
	}}
}

// contourShutdown is the manager's preStop hook; false if it did not complete.
func contourShutdown(ctx context.Context, a admin) bool {
	pause := contourDrainBackOff
	for i := range contourDrainTries {
		if a.post(ctx, "/healthcheck/fail") == nil || i+1 == contourDrainTries || !sleep(ctx, pause) {
			break
		}
		pause *= contourBackOffBy
	}
	if !sleep(ctx, contourCheckDelay) {
		return false
	}
	for {
		if open, err := contourOpen(ctx, a); err == nil && open <= contourMinimumOpen {
			return true
		}
		if !sleep(ctx, contourPoll) {
			return false
		}
	}
}

// contourIgnored are the stat prefixes that do not count.
var contourIgnored = []string{"admin", "envoy-admin", "stats", "health", "stats-health"}

// contourOpen adds up envoy_http_downstream_cx_active of all listeners but those. Where there
// is no such stat at all that is an error.
func contourOpen(ctx context.Context, a admin) (int, error) {
	body, err := a.get(ctx, `/stats/prometheus?filter=^http\..*\.downstream_cx_active$`)
	if err != nil {
		return 0, err
	}
	sum, found := 0, false
	for line := range strings.Lines(string(body)) {
		labels, is := strings.CutPrefix(line, "envoy_http_downstream_cx_active{")
		if !is {
			continue
		}
		found = true
		prefix, text, _ := strings.Cut(strings.TrimPrefix(labels, `envoy_http_conn_manager_prefix="`), `"} `)
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && !slices.Contains(contourIgnored, prefix) {
			sum += n
		}
	}
	if !found {
		return 0, errors.New("no envoy_http_downstream_cx_active")
	}
	return sum, nil
}

// expectContour: the poll after the last connection, then the hook's poll. An idle
// connection stays open, and with it the pod: Contour's own Envoy would close it after 60 s without a request.
func expectContour(c circumstances) expectation {
	gone := lag.Between(c.left, c.left+contourPoll+contourReadyPoll)
	switch c.scene {
	case Idle:
		gone.To = contourReadyPoll // the first look is at once
	case KeepAlive:
		gone = lag.At(c.grace)
	}
	s := waits(c, c.grace, gone)
	s.late = true
	return s.before(c.grace)
}
