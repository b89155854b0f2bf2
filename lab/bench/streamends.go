package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// What the drain of streams is.
const (
	endingStreams = 5000             // half of them event streams, half WebSockets
	endingGrace   = 12 * time.Second // from SIGTERM to SIGKILL
	endingMargin  = 3 * time.Second  // the last call is so long before: at most a quarter of the grace period
	endingSpread  = time.Second      // at most a third of the margin
)

// spreadLastCall sets all that for lastcall.
var spreadLastCall = []string{"MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=0s", "LASTCALL_IDLE_GRACE=0s",
	fmt.Sprintf("TERMINATION_GRACE_PERIOD_SECONDS=%.0f", endingGrace.Seconds()),
	"LASTCALL_LAST_CALL_MARGIN=" + endingMargin.String(),
	"LASTCALL_LAST_CALL_SPREAD=" + endingSpread.String()}

var (
	firstEnd   = &metric{title: "first end", show: seconds} // these from SIGTERM
	lastEnd    = &metric{title: "last end", show: seconds}
	endsExit   = &metric{title: "exit", show: seconds}
	crowd      = &metric{title: "most ends within 100 ms", show: whole}
	properEnds = &metric{title: "proper ends", show: whole, more: true}
	cutStreams = &metric{title: "cut", show: whole}
	resets     = &metric{title: "of them reset", show: whole}
)

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// streamEndsTable measures how open streams end at the last call.
var streamEndsTable = &table{
	name: "streamends", what: "the end of 5,000 event streams and WebSockets at the last call",
	apps: []subject{holdApp}, ownApps: true, many: true,
	how: func(*bench) string {
		return fmt.Sprintf("%s open streams, half event streams of a GET, half WebSockets, a token on each every %.0f s; SIGKILL %.0f s after "+
			"SIGTERM, lastcall's last call %.0f s before it, spread over %.0f s (evenly: %s within 100 ms). A proper end is a last "+
			"chunk after a whole event, or a close frame between messages, then a FIN. Times are from SIGTERM.",
			whole(endingStreams), tokenEvery.Seconds(), endingGrace.Seconds(), endingMargin.Seconds(),
			endingSpread.Seconds(), whole(evenCrowd))
	},
	subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx"},
	columns: []column{middle(firstEnd), middle(lastEnd), worst(crowd).titled(crowd.title),
		worst(properEnds).titled(properEnds.title),
		worst(cutStreams).titled(cutStreams.title), worst(resets).titled(resets.title), middleAndWorst(endsExit)},
	aims: []aim{
		{ours: "lastcall-http", of: cutStreams, limit: 0},
		{ours: "lastcall-http", of: crowd, limit: 2 * evenCrowd},
		{ours: "lastcall-http", of: endsExit, limit: endingGrace.Seconds()},
	},
	rounds: 2, // each takes the whole grace period
	quick:  []string{"lastcall-http", "envoy"},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		app, err := b.app(ctx, holdApp, place{})
		if err != nil {
			return nil, err
		}
		defer app.stop()
		// More than the streams need: nginx closes connections before it has run out of them.
		proxy, err := b.proxy(ctx, t.subject, app, place{Clients: endingStreams * 5 / 4, Env: spreadLastCall})
		if err != nil {
			return nil, err
		}
		defer proxy.stop()
		streams := make([]*stream, endingStreams)
		conns, err := openMany(ctx, proxy.port, endingStreams, func(i int, conn net.Conn) (err error) {
			path := eventsPath
			if i%2 == 1 {
				path = socketPath
			}
			streams[i], err = openStream(conn, path)
			return err
		})
		defer closeAll(conns)
		if err != nil {
			return nil, err
		}
		var watched sync.WaitGroup
		for _, s := range streams {
			if err := s.conn.SetDeadline(time.Now().Add(time.Second + endingGrace + 5*time.Second)); err != nil {
				return nil, err
			}
			watched.Go(s.watch)
		}
		if err := poll.Pause(ctx, time.Second); err != nil {
			return nil, err
		}
		signalled := time.Now()
		if err := proxy.signal(syscall.SIGTERM); err != nil {
			return nil, fmt.Errorf("signal: %w", err)
		}
		kill := time.AfterFunc(endingGrace, func() { _ = proxy.signal(os.Kill) }) // fails if it has ended
		defer kill.Stop()
		watched.Wait()
		select {
		case <-proxy.done:
		case <-time.After(endingGrace):
			return nil, errors.New("the process does not end")
		}
		var ends []streamEnd
		for _, s := range streams {
			if !s.end.at.IsZero() && s.end.at.Before(signalled) {
				return nil, fmt.Errorf("a stream ended before SIGTERM: %+v", s.end)
			}
			ends = append(ends, s.end)
		}
		v := judgeEnds(ends, signalled)
		v[endsExit] = proxy.ended.Sub(signalled).Seconds()
		return v, nil
	},
}

// What counts as a crowd, and how large it is if all ends are even.
const (
	crowdWindow = 100 * time.Millisecond
	evenCrowd   = float64(endingStreams) * float64(crowdWindow) / float64(endingSpread)
)

func judgeEnds(ends []streamEnd, signalled time.Time) values {
	v := values{crowd: 0, properEnds: 0, cutStreams: 0, resets: 0}
	var after []time.Duration
	for _, end := range ends {
		switch {
		case end.err == nil:
			v[properEnds]++
		case errors.Is(end.err, syscall.ECONNRESET):
			v[resets]++
			v[cutStreams]++
		default:
			v[cutStreams]++
		}
		if !end.at.IsZero() {
			after = append(after, end.at.Sub(signalled))
		}
	}
	if len(after) == 0 {
		return v
	}
	slices.Sort(after)
	v[firstEnd], v[lastEnd] = after[0].Seconds(), after[len(after)-1].Seconds()
	from := 0
	for i, at := range after {
		for at-after[from] > crowdWindow {
			from++
		}
		v[crowd] = max(v[crowd], float64(i-from+1))
	}
	return v
}
