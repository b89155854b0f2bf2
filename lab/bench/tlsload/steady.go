package tlsload

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Steady is a load of requests on kept connections, at a rate that each of them keeps by itself.
type Steady struct {
	Address     string      // host:port
	Connections int         // each makes as many requests a second as the others
	Config      *tls.Config // of the clients
	Payload     int         // of each request and of each response, bytes; the server answers POST /bytes/N with N
	Rate        float64     // requests a second, of all connections
	Duration    time.Duration
}

// Run makes the requests. A latency counts from when the request was due; an answer other than 200 is an error.
func (o Steady) Run(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration+answerTimeout)
	defer cancel()
	interval := time.Duration(float64(o.Connections) / o.Rate * float64(time.Second))
	began := time.Now()
	var all sync.WaitGroup
	took, failures := make([][]time.Duration, o.Connections), make([]error, o.Connections)
	for i := range o.Connections {
		first := began.Add(interval * time.Duration(i) / time.Duration(o.Connections))
		all.Go(func() { took[i], failures[i] = o.ask(ctx, first, began.Add(o.Duration), interval) })
	}
	all.Wait()
	result := Result{Took: time.Since(began)}
	if err := errors.Join(failures...); err != nil {
		return Result{}, err
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	if len(sorted) == 0 {
		return Result{}, fmt.Errorf("no request was due in %s at %.0f requests/s", o.Duration, o.Rate)
	}
	result.Requests, result.P50, result.P99 = len(sorted), sorted[len(sorted)/2], sorted[len(sorted)*99/100]
	return result, nil
}

// ask is one connection: a request every interval from first on, until end.
func (o Steady) ask(ctx context.Context, first, end time.Time, interval time.Duration) (took []time.Duration, err error) {
	dialed, err := new(net.Dialer).DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer dialed.Close()
	if err := dialed.SetDeadline(end.Add(answerTimeout)); err != nil {
		return nil, err
	}
	conn := tls.Client(dialed, o.Config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("shake hands: %w", err)
	}
	in := bufio.NewReader(conn)
	request := fmt.Appendf(nil, "POST /bytes/%d HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n", o.Payload, o.Payload)
	request = append(request, make([]byte, o.Payload)...)
	for due := first; due.Before(end); due = due.Add(interval) {
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if _, err := conn.Write(request); err != nil {
			return nil, fmt.Errorf("ask: %w", err)
		}
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return nil, fmt.Errorf("read a response: %w", err)
		}
		if n, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK || n != int64(o.Payload) {
			return nil, fmt.Errorf("read a response: %s, %d bytes, want %d: %w", response.Status, n, o.Payload, err)
		}
		took = append(took, time.Since(due))
	}
	return took, nil
}
