package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

var (
	allAnnounced   = &metric{title: "all FINs or GOAWAYs after the signal", show: milliseconds}
	cutConnections = &metric{title: "connections cut", show: whole}
	exitAfter      = &metric{title: "last close to exit", show: milliseconds} // as the client sees it
)

// drainLimit is for all that a drain does.
const drainLimit = 30 * time.Second

// drainNow makes SIGTERM the moment at which idle connections are closed, so that the result is how long that takes.
var drainNow = []string{
	"MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=0s", "LASTCALL_IDLE_GRACE=0s", "TERMINATION_GRACE_PERIOD_SECONDS=60",
}

// drainTable measures the end of many connections, half of which are in a long request.
var drainTable = &table{
	name: "drain", what: "the end of --held connections, half of them busy",
	apps: []subject{holdApp}, ownApps: true, many: true,
	how: func(b *bench) string {
		return fmt.Sprintf("%s connections, half idle, half with a request that the app answers once the idle ones are closed; no minimum drain. "+
			"FINs and GOAWAYs are those of idle ones. A connection is "+
			"cut if it ends without a FIN, or in HTTP/2 without a GOAWAY. The worst in brackets.", whole(float64(b.held)))
	},
	subjects: []string{"lastcall-http", "envoy", "haproxy-http"},
	cases:    []string{protocol1.title, protocol2.title},
	columns: []column{middleAndWorst(allAnnounced),
		total(lost), total(lostOf), total(cutConnections), middleAndWorst(exitAfter)},
	aims: []aim{
		{kase: protocol1.title, ours: "lastcall-http", of: allAnnounced, limit: 0.2},
		{kase: protocol2.title, ours: "lastcall-http", of: allAnnounced, limit: 0.2},
		{kase: protocol1.title, ours: "lastcall-http", of: exitAfter, limit: 0.05},
		{kase: protocol2.title, ours: "lastcall-http", of: exitAfter, limit: 0.05},
		{kase: protocol1.title, ours: "lastcall-http", of: lost, limit: 0},
		{kase: protocol2.title, ours: "lastcall-http", of: lost, limit: 0},
		{kase: protocol1.title, ours: "lastcall-http", of: cutConnections, limit: 0},
		{kase: protocol2.title, ours: "lastcall-http", of: cutConnections, limit: 0},
	},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		ctx, cancel := context.WithTimeout(ctx, 4*drainLimit)
		defer cancel()
		app, err := b.app(ctx, holdApp, place{})
		if err != nil {
			return nil, err
		}
		defer app.stop()
		proxy, err := b.proxy(ctx, t.subject, app,
			place{Env: drainNow, HTTP2: t.kase == protocol2.title, Clients: b.held + 100})
		if err != nil {
			return nil, err
		}
		defer proxy.stop()

		p := protocol1
		if t.kase == protocol2.title {
			p = protocol2
		}
		// Every other one is busy.
		clients := make([]*client, b.held)
		conns, err := openMany(ctx, proxy.port, b.held, func(i int, conn net.Conn) error {
			clients[i] = &client{
				conn: conn, busy: i%2 == 1, announced: make(chan struct{}), closed: make(chan struct{}),
			}
			return p.open(clients[i])
		})
		defer closeAll(conns)
		if err == nil {
			err = awaitHeld(ctx, app, b.held/2)
		}
		if err != nil {
			return nil, err
		}
		var closed sync.WaitGroup
		for _, c := range clients {
			_ = c.conn.SetDeadline(time.Now().Add(drainLimit))
			closed.Go(func() { c.err = p.watch(c) })
		}
		// A client whose goroutines are all about to start would be measured with it.
		if err := poll.Pause(ctx, time.Second); err != nil {
			return nil, err
		}
		signalled := time.Now()
		if err := proxy.signal(syscall.SIGTERM); err != nil {
			return nil, fmt.Errorf("signal: %w", err)
		}
		for _, c := range clients {
			if p.announcesToBusy || !c.busy {
				<-c.announced // no later than its deadline
			}
		}
		for _, c := range clients {
			if !c.busy {
				<-c.closed
			}
		}
		if _, err := callApp(ctx, http.MethodPost, app, releasePath); err != nil {
			return nil, err
		}
		closed.Wait()
		select {
		case <-proxy.done:
		case <-ctx.Done():
			return nil, errors.New("the process does not end")
		}
		return p.judge(clients, signalled, proxy.ended), nil
	},
}

// awaitHeld waits until the app has so many requests in flight.
func awaitHeld(ctx context.Context, app *process, want int) (err error) {
	n := 0
	ended := poll.Until(ctx, 20*time.Millisecond, func() bool {
		var body []byte
		if body, err = callApp(ctx, http.MethodGet, app, heldPath); err == nil {
			n, err = strconv.Atoi(string(body))
		}
		return err != nil || n >= want
	})
	if n > want {
		return fmt.Errorf("the app holds %d requests, %d are wanted", n, want)
	}
	return errors.Join(err, ended)
}

var appClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// callApp sends a request to the app itself, and returns the response's body.
func callApp(ctx context.Context, method string, app *process, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+app.address()+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := appClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("call the app: %w", err)
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
