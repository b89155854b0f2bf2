package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// beat is the interval of the messages of a stream, and of the quick requests next to a slow one.
const beat = 100 * time.Millisecond

// outcome of a conversation.
type outcome struct {
	Error    string    // empty: the conversation was complete
	Took     float64   // s
	LastByte time.Time // when its last byte came
	Beside   int       // quick requests on the same connection, of HTTP/2
	Lost     int       // of these
}

// conversation takes a time. It fails unless every byte of the response came.
type conversation func(ctx context.Context, host string, hold time.Duration, o *outcome) error

var kinds = map[string]conversation{"http1": http1, "http2": slowAndQuick, "grpc": stream, "websocket": messages}

func ask(ctx context.Context, talk conversation, host string, hold time.Duration) *outcome {
	ctx, cancel := context.WithTimeout(ctx, hold+time.Minute)
	defer cancel()
	o := &outcome{}
	began := time.Now()
	if err := talk(ctx, host, hold, o); err != nil {
		o.Error = err.Error()
	}
	o.LastByte = time.Now()
	o.Took = o.LastByte.Sub(began).Seconds()
	return o
}

func get(ctx context.Context, c http.RoundTripper, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil) // a method that is not repeated
	if err != nil {
		return err
	}
	response, err := c.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %.160s", response.StatusCode, body)
	}
	return err
}

func delayURL(host, port string, hold time.Duration) string {
	return fmt.Sprintf("http://%s/delay/%g", net.JoinHostPort(host, port), hold.Seconds())
}

func http1(ctx context.Context, host string, hold time.Duration, _ *outcome) error {
	c := &http.Transport{}
	defer c.CloseIdleConnections()
	return get(ctx, c, delayURL(host, portHTTP, hold))
}

// slowAndQuick asks for one slow response and, on the same connection, for quick ones, until the proxy asks by GOAWAY
// to open no more streams on it.
func slowAndQuick(ctx context.Context, host string, hold time.Duration, o *outcome) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c, err := (&http.Transport{Protocols: protocols}).NewClientConn(ctx, "http", net.JoinHostPort(host, portHTTP2))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	slow := make(chan error, 1)
	go func() { slow <- get(ctx, c, delayURL(host, portHTTP2, hold)) }()
	for tick := time.NewTicker(beat); ; {
		select {
		case err := <-slow:
			tick.Stop()
			return err
		case <-tick.C:
			if c.Available() == 0 {
				continue
			}
			err := get(ctx, c, delayURL(host, portHTTP2, beat/5))
			if unprocessed(err) {
				continue
			}
			o.Beside++
			if err != nil {
				o.Lost++
				o.Error = err.Error() // overwritten by that of the slow one
			}
		}
	}
}

// unprocessed is true for a request that came too late for the connection, of which the client knows that no server has
// seen it.
func unprocessed(err error) bool {
	for _, text := range []string{
		"graceful shutdown GOAWAY", "client conn not usable", // net/http does not export these errors
		"503 no healthy upstream", // from the proxy of a client in the mesh: the Service has no other pod
	} {
		if err != nil && strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

func stream(ctx context.Context, host string, hold time.Duration, _ *outcome) error {
	c, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(host, portGRPC),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	request := &pb.StreamingOutputCallRequest{}
	for range hold / beat {
		part := &pb.ResponseParameters{Size: 100, IntervalUs: int32(beat.Microseconds())}
		request.ResponseParameters = append(request.ResponseParameters, part)
	}
	call, err := pb.NewTestServiceClient(c).StreamingOutputCall(ctx, request)
	if err != nil {
		return err
	}
	for i := range request.ResponseParameters {
		if _, err := call.Recv(); err != nil {
			return fmt.Errorf("message %d of %d: %w", i, len(request.ResponseParameters), err)
		}
	}
	if _, err := call.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the status: %w", err)
	}
	return nil
}

func messages(ctx context.Context, host string, hold time.Duration, _ *outcome) error {
	at := net.JoinHostPort(host, portHTTP)
	config, err := websocket.NewConfig("ws://"+at+"/echo", "http://"+at)
	if err != nil {
		return err
	}
	c, err := config.DialContext(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(hold + time.Minute)); err != nil {
		return err
	}
	for i := range int(hold / beat) {
		var got string
		if err := websocket.Message.Send(c, fmt.Sprint(i)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if err := websocket.Message.Receive(c, &got); err != nil || got != fmt.Sprint(i) {
			return fmt.Errorf("the echo of message %d: %q, %w", i, got, err)
		}
		time.Sleep(beat)
	}
	return nil
}
