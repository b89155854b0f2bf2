package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// startSample is one start.
type startSample struct {
	connected, answered time.Duration // from before the fork
}

// start measures how long it takes from exec until clients are served.
func (b *bench) start(ctx context.Context) error {
	app, err := b.app(ctx, backend, place{})
	if err != nil {
		return err
	}
	defer app.stop()
	subjects, samples := b.of("start"), map[string][]startSample{}
	for range b.starts {
		for _, s := range subjects {
			result, err := b.startOnce(ctx, s, app)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			samples[s.name] = append(samples[s.name], result)
		}
	}
	fmt.Printf("From before the fork until a connection is accepted and until a request is answered, %d starts in turns, on one core. "+
		"Peers may be started by a wrapper of one line.\n\n", b.starts)
	fmt.Println("| | connection, median | worst | answer, median | worst |")
	fmt.Println("|---|---:|---:|---:|---:|")
	for _, s := range subjects {
		connected, answered := func(s startSample) time.Duration { return s.connected }, func(s startSample) time.Duration { return s.answered }
		_, slowest := extremes(samples[s.name], connected)
		_, last := extremes(samples[s.name], answered)
		fmt.Printf("| %s | %s | %s | %s | %s |\n", s.title, milliseconds(median(samples[s.name], connected)), milliseconds(slowest),
			milliseconds(median(samples[s.name], answered)), milliseconds(last))
	}
	return nil
}

func (b *bench) startOnce(ctx context.Context, s subject, app *process) (startSample, error) {
	dir, err := b.folder(s.name)
	if err != nil {
		return startSample{}, err
	}
	proxy, err := launch(ctx, s, b.programs[s.name], b.proxyCore, place{Dir: dir, Backend: app.port})
	if err != nil {
		return startSample{}, err
	}
	defer proxy.stop()
	conn, err := proxy.knock(ctx)
	if err != nil {
		return startSample{}, err
	}
	defer conn.Close()
	result := startSample{connected: time.Since(proxy.began)}
	if err := getSmall(conn); err != nil {
		return startSample{}, err
	}
	result.answered = time.Since(proxy.began)
	return result, nil
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
