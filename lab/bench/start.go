package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

var (
	toConnection = &metric{title: "connection", show: milliseconds} // from before the fork
	toAnswer     = &metric{title: "answer", show: milliseconds}
)

// startTable measures how long it takes from exec until clients are served.
var startTable = &table{
	name: "start", what: "from exec to the first connection and the first answer", apps: []subject{backend},
	how: func(*bench) string {
		return "From before the fork until a connection is accepted and until a request is answered, on one core."
	},
	subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx"},
	columns: []column{middle(toConnection).titled("connection, median"), worst(toConnection),
		middle(toAnswer).titled("answer, median"), worst(toAnswer)},
	ratios: []*metric{toAnswer},
	aims:   []aim{{ours: "lastcall-http", of: toAnswer, limit: 0.02}},
	rounds: 20,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		dir, err := b.folder(t.name)
		if err != nil {
			return nil, err
		}
		p := place{Dir: dir, Backend: t.apps[backend.name].port}
		proxy, err := launch(ctx, t.subject, b.programs[t.name], proxyCore, p)
		if err != nil {
			return nil, err
		}
		defer proxy.stop()
		conn, err := proxy.knock(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		connected := time.Since(proxy.began)
		if err := getSmall(conn); err != nil {
			return nil, err
		}
		return values{toConnection: connected.Seconds(), toAnswer: time.Since(proxy.began).Seconds()}, nil
	},
}

// knock tries to connect ten times a millisecond until it succeeds.
func (p *process) knock(ctx context.Context) (net.Conn, error) {
	for limit := time.Now().Add(readyTimeout); time.Now().Before(limit); {
		conn, err := net.Dial("tcp", p.address())
		if err == nil {
			return conn, nil
		}
		select {
		case <-p.done:
			return nil, errors.New("it ended at once")
		case <-ctx.Done():
			return nil, ctx.Err()
		default:
		}
		// Go's own timers may be a millisecond late on an idle core.
		pause := unix.NsecToTimespec((50 * time.Microsecond).Nanoseconds())
		_ = unix.Nanosleep(&pause, nil)
	}
	return nil, fmt.Errorf("connect to %s: no listener after %s", p.name, readyTimeout)
}
