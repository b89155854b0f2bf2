package conformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// The interop suite ends the process when a case fails. Here a case panics instead.
type failure string

type panicking struct{ grpclog.LoggerV2 }

func (panicking) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (panicking) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (panicking) Fatalln(args ...any)               { panic(failure(fmt.Sprintln(args...))) }

// run runs a case and returns how it failed.
func run(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%s", string(r))
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// interopCases are those of gRPC's interop suite (grpc/doc/interop-test-descriptions.md)
// that need neither a cloud's credentials nor xDS.
var interopCases = []struct {
	name string
	do   func(ctx context.Context, cc *grpc.ClientConn)
}{
	{"empty_unary", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoEmptyUnaryCall(ctx, c) })},
	{"large_unary", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoLargeUnaryCall(ctx, c) })},
	{"client_streaming", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoClientStreaming(ctx, c) })},
	{"server_streaming", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoServerStreaming(ctx, c) })},
	{"ping_pong", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoPingPong(ctx, c) })},
	{"empty_stream", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoEmptyStream(ctx, c) })},
	{"timeout_on_sleeping_server", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoTimeoutOnSleepingServer(ctx, c) })},
	{"cancel_after_begin", with(cancelAfterBegin)},
	{"cancel_after_first_response", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoCancelAfterFirstResponse(ctx, c) })},
	{"custom_metadata", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoCustomMetadata(ctx, c) })},
	{"status_code_and_message", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoStatusCodeAndMessage(ctx, c) })},
	{"special_status_message", with(func(ctx context.Context, c testgrpc.TestServiceClient) { interop.DoSpecialStatusMessage(ctx, c) })},
	{"unimplemented_method", interop.DoUnimplementedMethod},
	{"unimplemented_service", func(ctx context.Context, cc *grpc.ClientConn) {
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
	}},
}

// cancelAfterBegin is interop.DoCancelAfterBegin, which fails when the response arrives before the client handles the
// cancellation: without a proxy in 5 of 64,000 calls. grpc-go itself reports that the connection is draining of a call that was
// cancelled before a GOAWAY sent it elsewhere.
func cancelAfterBegin(ctx context.Context, c testgrpc.TestServiceClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.StreamingInputCall(ctx)
	if err != nil {
		panic(failure(fmt.Sprintf("StreamingInputCall: %v", err)))
	}
	cancel()
	_, err = stream.CloseAndRecv()
	if err != nil && status.Code(err) != codes.Canceled && status.Convert(err).Message() != "the connection is draining" {
		panic(failure(fmt.Sprintf("CloseAndRecv: %v; want no error, or code %s", err, codes.Canceled)))
	}
}

func with(do func(context.Context, testgrpc.TestServiceClient)) func(context.Context, *grpc.ClientConn) {
	return func(ctx context.Context, cc *grpc.ClientConn) { do(ctx, testgrpc.NewTestServiceClient(cc)) }
}

// startGRPC runs the suite's server. A method that it does not know hangs when it is
// called hang.
func startGRPC(t *testing.T) net.Addr {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		name, _ := grpc.MethodFromServerStream(stream)
		switch {
		case strings.HasSuffix(name, "/hang"):
			<-stream.Context().Done()
		case strings.HasSuffix(name, "/begin"):
			if err := stream.SendMsg(new(testgrpc.Empty)); err != nil {
				return err
			}
			<-stream.Context().Done()
		}
		return status.Error(codes.Unimplemented, name)
	}))
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return ln.Addr()
}

func dialGRPC(t *testing.T, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	must.Do(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func TestGRPCInterop(t *testing.T) {
	app := startGRPC(t)
	for _, way := range []struct {
		name    string
		pipe    *pipe.Pipe
		options []grpc.DialOption
	}{
		{"clear", startPipe(t, app), nil},
		{"TLS", startPipe(t, app, secured(t)), []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}))}},
	} {
		t.Run(way.name, func(t *testing.T) {
			cc := dialGRPC(t, way.pipe.Addr(0).String(), way.options...)
			for _, c := range interopCases {
				t.Run(c.name, func(t *testing.T) {
					if err := run(func() { c.do(t.Context(), cc) }); err != nil {
						t.Error(err)
					}
				})
			}
			awaitIdle(t, way.pipe)
			for name, n := range counters.HTTP2ByName(way.pipe.Stats().H2) {
				if n > 0 && name != "rx_reset" && name != "tx_reset" && name != "goaway_sent" {
					t.Errorf("%s is %d: the pipe has ended a connection of a good client", name, n)
				}
			}
		})
	}
}

// Each case continues over and over while the pod that serves it is drained and
// another takes over. None fails, and the drained one ends with nothing cut.
func TestGRPCInteropAcrossADrain(t *testing.T) {
	app := startGRPC(t)
	for _, c := range interopCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			old, young := startPipe(t, app), startPipe(t, app)
			endpoints := manual.NewBuilderWithScheme("pod")
			at := func(p *pipe.Pipe) resolver.State {
				return resolver.State{Addresses: []resolver.Address{{Addr: p.Addr(0).String()}}}
			}
			endpoints.InitialState(at(old))
			cc := dialGRPC(t, "pod:///app", grpc.WithResolvers(endpoints))

			callAcrossADrain(t, func() { c.do(t.Context(), cc) }, 0, old, func(func()) { endpoints.UpdateState(at(young)) })
		})
	}
}

// callAcrossADrain has four workers call over and over, pausing in between, while old is drained
// and ended. move, which can wait for more calls, has another pipe take over meanwhile. No
// call may fail, nor be cut.
func callAcrossADrain(t *testing.T, call func(), pause time.Duration, old *pipe.Pipe, move func(more func())) {
	t.Helper()
	var done atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				if err := run(call); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
				time.Sleep(pause)
			}
		})
	}
	more := func() {
		n := done.Load() + 20
		polltest.Eventually(t, "20 more calls", func() bool { return done.Load() >= n || t.Failed() })
	}
	more()
	must.Do(t, old.Drain(ctx))
	move(more)
	more()
	awaitIdle(t, old)
	if err := old.CloseIdle(ctx, 0); err != nil {
		t.Error(err)
	}
	closing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := old.Close(closing); err != nil {
		open, _ := old.Open(t.Context(), 5)
		t.Errorf("%v: %+v", err, open)
	}
	more()
	stop()
	workers.Wait()
	if s := old.Stats(); s.Truncated > 0 {
		t.Errorf("%d calls were truncated", s.Truncated)
	}
}

// What the last call ends is UNAVAILABLE to the client's code, whatever kind of call
// it was and however far it had come: gRPC's own retries know it as safe to repeat
// where nothing had come back.
func TestGRPCLastCall(t *testing.T) {
	const message = "the server is shutting down"
	for _, tt := range []struct {
		name string
		// begin starts a call and returns when it has begun; its error is for later.
		begin func(ctx context.Context, cc *grpc.ClientConn) (func() error, error)
	}{
		{"unary, no answer yet", func(ctx context.Context, cc *grpc.ClientConn) (func() error, error) {
			result := make(chan error, 1)
			go func() { result <- cc.Invoke(ctx, "/any/hang", new(testgrpc.Empty), new(testgrpc.Empty)) }()
			return func() error { return <-result }, nil
		}},
		{"stream, no answer yet", func(ctx context.Context, cc *grpc.ClientConn) (func() error, error) {
			stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
			return func() error { _, err := stream.Recv(); return err }, err
		}},
		{"upload in flight", func(ctx context.Context, cc *grpc.ClientConn) (func() error, error) {
			stream, err := testgrpc.NewTestServiceClient(cc).StreamingInputCall(ctx)
			if err == nil {
				err = stream.Send(&testgrpc.StreamingInputCallRequest{Payload: &testgrpc.Payload{Body: make([]byte, 100_000)}})
			}
			return func() error { return stream.RecvMsg(new(testgrpc.StreamingInputCallResponse)) }, err
		}},
		{"responses in flight", func(ctx context.Context, cc *grpc.ClientConn) (func() error, error) {
			stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/any/begin")
			if err != nil {
				return nil, err
			}
			if err := stream.RecvMsg(new(testgrpc.Empty)); err != nil {
				return nil, err
			}
			return func() error { return stream.RecvMsg(new(testgrpc.Empty)) }, nil
		}},
		{"a download at full speed", func(ctx context.Context, cc *grpc.ClientConn) (func() error, error) {
			stream, err := testgrpc.NewTestServiceClient(cc).StreamingOutputCall(ctx, &testgrpc.StreamingOutputCallRequest{
				ResponseParameters: slices.Repeat([]*testgrpc.ResponseParameters{{Size: 1 << 20}}, 10_000),
			})
			if err != nil {
				return nil, err
			}
			if _, err := stream.Recv(); err != nil {
				return nil, err
			}
			return func() error {
				for {
					if _, err := stream.Recv(); err != nil {
						return err
					}
				}
			}, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPipe(t, startGRPC(t))
			cc := dialGRPC(t, p.Addr(0).String(), grpc.WithDisableRetry())
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			end, err := tt.begin(ctx, cc)
			must.Do(t, err)
			polltest.Eventually(t, "the call is open", func() bool {
				open, _ := p.Open(ctx, 1)
				return len(open) == 1 && open[0].Protocol == "grpc"
			})
			result := make(chan error, 1)
			go func() { result <- end() }()
			_ = p.Drain(ctx)
			left, err := p.LastCall(ctx, 5*time.Second)
			if err != nil || len(left) != 1 || left[0].Ending != "grpc-status 14" {
				t.Errorf("%+v, %v; want one ended by grpc-status 14", left, err)
			}
			if s := status.Convert(<-result); s.Code() != codes.Unavailable || s.Message() != message {
				t.Errorf("the client sees %v: %s; want Unavailable: %s", s.Code(), s.Message(), message)
			}
		})
	}
}
