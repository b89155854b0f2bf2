package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// drainSample is one drain.
type drainSample struct {
	goodbye, lastGoodbye time.Duration // from the signal: half and all of those that can be closed at once
	idleClosed           time.Duration // from the signal until the last idle connection was closed
	finish               time.Duration // from the moment at which the app answered until the last busy connection was closed
	exit                 time.Duration // from the last close, as the client sees it, to the end of the process
	lost                 int
}

// drainLimit is for all that a drain does.
const drainLimit = 30 * time.Second

// drainNow makes SIGTERM the moment at which idle connections are closed, so that what is measured is how long that takes.
var drainNow = []string{"MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=0s", "LASTCALL_IDLE_GRACE=0s", "TERMINATION_GRACE_PERIOD_SECONDS=60"}

// drain measures the end of many connections, half of which are in a long request.
func (b *bench) drain(ctx context.Context) error {
	subjects := b.of("drain")
	if len(subjects) == 0 {
		return nil
	}
	type row struct {
		subject
		protocol
		samples []drainSample
	}
	var rows []*row
	for _, p := range []protocol{protocol1, protocol2} {
		for _, s := range subjects {
			rows = append(rows, &row{subject: s, protocol: p})
		}
	}
	for round := range b.rounds {
		for _, r := range rows {
			result, err := b.drainOnce(ctx, r.subject, r.protocol)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.subject.name, r.protocol.title, err)
			}
			r.samples = append(r.samples, result)
			fmt.Fprintf(os.Stderr, "round %d of %d: drain, %s, %s: last FIN or GOAWAY %s, exit %s after the last close, %d lost\n", round+1, b.rounds, r.subject.name, r.protocol.title,
				milliseconds(result.lastGoodbye), milliseconds(result.exit), result.lost)
		}
	}
	fmt.Printf("The drain of %d connections, half of them idle, half with a request that the app answers once the idle ones are gone; no minimum drain. "+
		"Medians of %d rounds, the worst in brackets. A busy HTTP/1.1 connection is closed with its response: the FINs and GOAWAYs are those to idle connections.\n\n", b.held, b.rounds)
	fmt.Println("| | half of the FINs or GOAWAYs after the signal | all | idle all closed | answers to the last close | requests lost | last close to exit |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|")
	for _, r := range rows {
		cell := func(of func(drainSample) time.Duration) string {
			_, worst := extremes(r.samples, of)
			return fmt.Sprintf("%s (%s)", milliseconds(median(r.samples, of)), milliseconds(worst))
		}
		lost := 0
		for _, s := range r.samples {
			lost += s.lost
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %d of %d | %s |\n", r.subject.title+": "+r.protocol.title, cell(func(s drainSample) time.Duration { return s.goodbye }),
			cell(func(s drainSample) time.Duration { return s.lastGoodbye }), cell(func(s drainSample) time.Duration { return s.idleClosed }),
			cell(func(s drainSample) time.Duration { return s.finish }), lost, b.rounds*(b.held/2), cell(func(s drainSample) time.Duration { return s.exit }))
	}
	return nil
}

func (b *bench) drainOnce(ctx context.Context, s subject, p protocol) (drainSample, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*drainLimit)
	defer cancel()
	app, err := b.app(ctx, holdApp, place{})
	if err != nil {
		return drainSample{}, err
	}
	defer app.stop()
	proxy, err := b.proxy(ctx, s, app, place{Env: drainNow})
	if err != nil {
		return drainSample{}, err
	}
	defer proxy.stop()

	// Every other one is busy.
	clients := make([]*client, b.held)
	conns, err := openMany(ctx, proxy.port, b.held, func(i int, conn net.Conn) error {
		clients[i] = newClient(conn, i%2 == 1)
		return p.open(clients[i])
	})
	defer closeAll(conns)
	if err == nil {
		err = awaitHeld(ctx, app, b.held/2)
	}
	if err != nil {
		return drainSample{}, err
	}
	var closed sync.WaitGroup
	for _, c := range clients {
		_ = c.conn.SetDeadline(time.Now().Add(drainLimit))
		closed.Go(func() { c.err = p.watch(c) })
	}
	// A client whose goroutines are all about to start would be measured with it.
	if err := pause(ctx, time.Second); err != nil {
		return drainSample{}, err
	}
	signalled := time.Now()
	if err := proxy.signal(syscall.SIGTERM); err != nil {
		return drainSample{}, fmt.Errorf("signal: %w", err)
	}
	for _, c := range clients {
		if p.tellsBusy || !c.busy {
			<-c.told // no later than its deadline
		}
	}
	for _, c := range clients {
		if !c.busy {
			<-c.over
		}
	}
	released := time.Now()
	if err := ask(ctx, http.MethodPost, app, releasePath, nil); err != nil {
		return drainSample{}, err
	}
	closed.Wait()
	select {
	case <-proxy.done:
	case <-ctx.Done():
		return drainSample{}, errors.New("the process does not end")
	}
	return p.judge(clients, signalled, released, proxy.ended)
}

// awaitHeld waits until the app has so many requests in flight.
func awaitHeld(ctx context.Context, app *process, want int) error {
	for {
		var said []byte
		if err := ask(ctx, http.MethodGet, app, heldPath, &said); err != nil {
			return err
		}
		if n, err := strconv.Atoi(string(said)); err != nil || n > want {
			return fmt.Errorf("the app holds %q requests, %d are wanted", said, want)
		} else if n == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ask(ctx context.Context, method string, app *process, path string, said *[]byte) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+app.address()+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the app: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if said != nil {
		*said = body
	}
	return err
}
