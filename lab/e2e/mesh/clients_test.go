//go:build e2e

package mesh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// dialer connects from a network.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// from is the network of the pod client, in the mesh, or this machine's.
func (n *namespace) from(inside bool) dialer {
	n.T.Helper()
	if !inside {
		return new(net.Dialer).DialContext
	}
	_, id, _ := strings.Cut(n.Ready("client").Status.ContainerStatuses[0].ContainerID, "://")
	pids, err := os.ReadFile(processList(n.T, id))
	must.Do(n.T, err)
	file, err := os.Open("/proc/" + strings.Fields(string(pids))[0] + "/ns/net")
	must.Do(n.T, err)
	n.T.Cleanup(func() { _ = file.Close() })
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = sockdiag.Within(int(file.Fd()), func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}

// beat is the interval of the messages of a stream, and of the quick requests next to a slow one.
const beat = 100 * time.Millisecond

// outcome of a conversation.
type outcome struct {
	Error    string    // empty: the conversation was complete
	LastByte time.Time // when its last byte came
	Beside   int       // quick requests on the same connection, of HTTP/2
	Lost     int       // of these
}

// kinds of conversations, which take a time. Each fails unless every byte of the response came.
var kinds = map[string]func(ctx context.Context, dial dialer, host string, hold time.Duration, o *outcome) error{
	"http1": http1, "http2": slowAndQuick, "grpc": stream, "websocket": messages,
}

func ask(ctx context.Context, kind string, dial dialer, host string, hold time.Duration) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, hold+time.Minute)
	defer cancel()
	if err := kinds[kind](ctx, dial, host, hold, &o); err != nil {
		o.Error = err.Error()
	}
	o.LastByte = time.Now()
	return o
}

// slow asks for what takes its time, by a method that is not repeated.
func slow(ctx context.Context, c http.RoundTripper, host, port string, takes time.Duration) error {
	url := fmt.Sprintf("http://%s/delay/%g", net.JoinHostPort(host, port), takes.Seconds())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
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

func http1(ctx context.Context, dial dialer, host string, hold time.Duration, _ *outcome) error {
	c := &http.Transport{DialContext: dial}
	defer c.CloseIdleConnections()
	return slow(ctx, c, host, "8080", hold)
}

// slowAndQuick asks for one slow response and, on the same connection, for quick ones, until the proxy asks by GOAWAY
// to open no more streams on it.
func slowAndQuick(ctx context.Context, dial dialer, host string, hold time.Duration, o *outcome) error {
	const port = "8082"
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: dial}
	c, err := transport.NewClientConn(ctx, "http", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	answered := make(chan error, 1)
	go func() { answered <- slow(ctx, c, host, port, hold) }()
	for tick := time.NewTicker(beat); ; {
		select {
		case err := <-answered:
			tick.Stop()
			return err
		case <-tick.C:
			if c.Available() == 0 {
				continue
			}
			err := slow(ctx, c, host, port, beat/5)
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

func stream(ctx context.Context, dial dialer, host string, hold time.Duration, _ *outcome) error {
	c, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(host, "9090"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) { return dial(ctx, "tcp", at) }))
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

func messages(ctx context.Context, dial dialer, host string, hold time.Duration, _ *outcome) error {
	at := net.JoinHostPort(host, "8080")
	config, err := websocket.NewConfig("ws://"+at+"/echo", "http://"+at)
	if err != nil {
		return err
	}
	raw, err := dial(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	if err := raw.SetDeadline(time.Now().Add(hold + time.Minute)); err != nil {
		return err
	}
	c, err := websocket.NewClient(config, raw)
	if err != nil {
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

// begin sends a request of HTTP/1.1 on a connection of its own.
func begin(t *testing.T, dial dialer, host, path string) net.Conn {
	at := net.JoinHostPort(host, "8080")
	c, err := dial(t.Context(), "tcp", at)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(2 * patience))
		_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, at)
	}
	must.Do(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// idleClients keep a connection open each.
const idleClients = 5

// idle opens connections, asks once on each, all at the same time so that a proxy between needs as many, and keeps them
// open until the end of the test. It counts those that the other side closes.
func idle(t *testing.T, dial dialer, host string, clients int) (closed *atomic.Int64) {
	t.Helper()
	closed = new(atomic.Int64)
	all := make([]net.Conn, clients)
	for i := range all {
		all[i] = begin(t, dial, host, "/delay/0.3")
	}
	for _, c := range all {
		in := bufio.NewReader(c)
		_, err := loadtest.Receive(in)
		must.Do(t, err)
		go func() {
			if _, err := in.ReadByte(); err != nil && !errors.Is(err, net.ErrClosed) {
				closed.Add(1)
			}
		}()
	}
	return closed
}

// crowded has the counts of the clients of one pod.
type crowded struct {
	mu sync.Mutex // guards the rest

	Lost, Refused int // requests, and connections that were refused
	Failed        int // requests with another answer than 200, such as a proxy's 503
}

func (r *crowded) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// receive takes the answer of a request.
func (r *crowded) receive(c net.Conn) {
	defer func() { _ = c.Close() }()
	switch response, err := loadtest.Receive(bufio.NewReader(c)); {
	case err != nil:
		r.count(&r.Lost)
	case response.StatusCode != http.StatusOK:
		r.count(&r.Failed)
	}
}

// late has clients, one after another, until the pod's network is gone.
func (r *crowded) late(clients int, dial dialer, host string, asking *sync.WaitGroup) {
	at := net.JoinHostPort(host, "8080")
	for range clients {
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		c, err := dial(ctx, "tcp", at)
		cancel()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			r.count(&r.Refused)
		case errors.Is(err, syscall.ECONNRESET):
			r.count(&r.Lost)
		case err != nil: // the pod's network is gone
			return
		default:
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			_, _ = fmt.Fprintf(c, "GET /get HTTP/1.1\r\nHost: %s\r\n\r\n", at)
			asking.Go(func() { r.receive(c) })
		}
	}
}

// durations are how long the app takes for a request, in turn, s.
var durations = []string{"0.02", "0.05", "0.02", "0.2", "0.02", "1", "0.05", "3", "0.02", "8"}

// load asks at a fixed rate over kept connections, until ctx ends. No request is repeated.
func load(ctx context.Context, dial dialer, url, host string, rate int) *loadtest.Load {
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DialContext: dial}}
	defer c.CloseIdleConnections()
	return loadtest.AtRate(ctx, rate, func(i int) (why string) {
		at := url + "/delay/" + durations[i%len(durations)]
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, at, strings.NewReader("x"))
		if err != nil {
			return err.Error()
		}
		request.Host = host
		return loadtest.Send(c, request)
	})
}
