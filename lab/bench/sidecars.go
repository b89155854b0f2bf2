package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	halfP99    = &metric{title: "p99 at half of that rate", show: milliseconds}
	cpuPerConn = &metric{title: "CPU per short connection", show: microseconds}
	idleResets = &metric{title: "idle connections reset", show: whole}
	tillExit   = &metric{title: "SIGTERM to exit", show: seconds}
)

// sidecars are those that take redirected connections.
var sidecars = []string{"lastcall-captured", "linkerd", "ztunnel", "ztunnel-hbone"}

var sidecarsTable = &table{
	name: "sidecars", what: "the sidecars of linkerd and Istio ambient, with redirected connections", apps: []subject{backend}, tools: []string{"wrk"},
	how: func(b *bench) string {
		return fmt.Sprintf("HTTP/1.1; the kernel redirects the clients' connections to each of them, as in a pod, and tracks them, which is part of each one's figures. "+
			"%d keep-alive connections (wrk); p99 at half of the rate counts from when a request was due; short connections are %d at a time with `Connection: close`. "+
			"Start is from before the fork. linkerd2-proxy passes inbound HTTP on without a policy; ztunnel passes bytes on, or through HBONE with mTLS out and in, "+
			"twice the work, within one process. Each has one worker thread and one core; load and app share another.", b.connections, shortClients)
	},
	subjects: sidecars,
	quick:    sidecars,
	columns:  []column{middle(requestRate), extent(requestRate), middle(cpuPerRequest), middle(halfP99), middle(cpuPerConn), middle(idleMemory), middle(toAnswer).titled("start to first answer")},
	ratios:   []*metric{requestRate, cpuPerRequest, cpuPerConn},
	aims: []aim{
		{ours: "lastcall-captured", of: cpuPerRequest, theirs: "linkerd", limit: 1}, {ours: "lastcall-captured", of: cpuPerRequest, theirs: "ztunnel", limit: 1},
		{ours: "lastcall-captured", of: halfP99, theirs: "linkerd", limit: 1}, {ours: "lastcall-captured", of: halfP99, theirs: "ztunnel", limit: 1},
	},
	duration: time.Second,
	timed:    true, takes: 9 * time.Second,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		all, err := b.load(ctx, t, backend, place{Clients: b.connections}, func(ctx context.Context, proxy *process, duration time.Duration) (load, error) {
			return wrk(ctx, b.tool("wrk"), proxy.url(), b.connections, duration)
		})
		if err != nil {
			return nil, err
		}
		delete(all, coreUsed)
		began := time.Now()
		proxy, err := b.proxy(ctx, t.subject, t.apps[backend.name], place{})
		if err != nil {
			return nil, err
		}
		all[toAnswer] = time.Since(began).Seconds()
		proxy.stop()
		_, result, err := b.halfLoad(ctx, t.subject, t.apps[backend.name], all[requestRate]/2)
		if err != nil {
			return nil, err
		}
		all[halfP99] = result.Percentile(99).Seconds()
		short, err := shortTable.turn(ctx, b, t)
		if err != nil {
			return nil, err
		}
		all[cpuPerConn] = short[cpuPerRequest]
		return all, nil
	},
}

// What the end of a sidecar is.
const (
	sidecarAnswer = time.Second      // from SIGTERM until the app answers
	sidecarGrace  = 12 * time.Second // from SIGTERM to SIGKILL
)

var sidecarEndsTable = &table{
	name: "sidecarends", what: "their memory and drain with --held connections", apps: []subject{backend, holdApp}, ownApps: true, many: true,
	how: func(b *bench) string {
		return fmt.Sprintf("Memory: %s idle connections, as in the table of memory. Drain: SIGTERM with as many, half of them idle, half with a request that the app answers %.0f s later; "+
			"clients close no connection that did not announce its end, and SIGKILL comes after %.0f s. A request is lost if its answer does not arrive whole. No minimum drain.",
			whole(float64(b.held)), sidecarAnswer.Seconds(), sidecarGrace.Seconds())
	},
	subjects: sidecars,
	quick:    []string{},
	columns: []column{middle(idleMemory), middle(withThem), middle(perPair), middle(socketsEach), total(lost), total(lostOf), total(idleResets),
		middleAndWorst(tillExit)},
	aims: []aim{
		{ours: "lastcall-captured", of: perPair, theirs: "linkerd", limit: 1}, {ours: "lastcall-captured", of: perPair, theirs: "ztunnel", limit: 1},
		{ours: "lastcall-captured", of: lost, limit: 0},
	},
	rounds: 2,
	takes:  18 * time.Second,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		held, err := b.hold(ctx, t.subject, b.held, nil)
		if err != nil {
			return nil, err
		}
		v := values{idleMemory: held.before, withThem: held.resident, perPair: (held.resident - held.before) / float64(b.held), socketsEach: held.sockets / float64(b.held)}
		held.release()
		ended, err := b.endSidecar(ctx, t.subject)
		if err != nil {
			return nil, err
		}
		for m, figure := range ended {
			v[m] = figure
		}
		return v, nil
	},
}

// endSidecar ends the subject with many connections, every other one of them busy.
func (b *bench) endSidecar(ctx context.Context, s subject) (values, error) {
	app, err := b.app(ctx, holdApp, place{})
	if err != nil {
		return nil, err
	}
	defer app.stop()
	env := append(drainNow[:len(drainNow)-1:len(drainNow)-1], fmt.Sprintf("TERMINATION_GRACE_PERIOD_SECONDS=%.0f", sidecarGrace.Seconds()))
	proxy, err := b.proxy(ctx, s, app, place{Env: env, Clients: b.held + 100})
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	conns, err := openMany(ctx, proxy.port, b.held, func(i int, conn net.Conn) error {
		if i%2 == 0 {
			return getSmall(conn)
		}
		_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", holdPath)
		return err
	})
	defer closeAll(conns)
	if err == nil {
		err = awaitHeld(ctx, app, b.held/2)
	}
	if err != nil {
		return nil, err
	}
	var lostRequests, resetIdle atomic.Int64
	var watched sync.WaitGroup
	for i, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(sidecarGrace + 10*time.Second))
		watched.Go(func() {
			defer conn.Close()
			if i%2 == 1 && !isAnswered(conn) {
				lostRequests.Add(1)
				return
			}
			if _, err := conn.Read(make([]byte, 1)); i%2 == 0 && errors.Is(err, syscall.ECONNRESET) {
				resetIdle.Add(1)
			}
		})
	}
	if err := pause(ctx, time.Second); err != nil {
		return nil, err
	}
	signalled := time.Now()
	if err := proxy.signal(syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("signal: %w", err)
	}
	kill := time.AfterFunc(sidecarGrace, func() { _ = proxy.signal(os.Kill) }) // fails if it has ended
	defer kill.Stop()
	if err := pause(ctx, sidecarAnswer); err != nil {
		return nil, err
	}
	if err := ask(ctx, http.MethodPost, app, releasePath, nil); err != nil {
		return nil, err
	}
	watched.Wait()
	select {
	case <-proxy.done:
	case <-ctx.Done():
		return nil, errors.New("the process does not end")
	}
	return values{lost: float64(lostRequests.Load()), lostOf: float64(b.held / 2), idleResets: float64(resetIdle.Load()),
		tillExit: proxy.ended.Sub(signalled).Seconds()}, nil
}

// isAnswered reads a response, and closes the connection if it announces its end.
func isAnswered(conn net.Conn) bool {
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 1<<10), nil)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return false
	}
	if response.Close {
		_ = conn.Close()
	}
	return true
}
