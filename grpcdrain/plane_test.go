package grpcdrain_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/drain/planetest"
	"github.com/lastcall-dev/lastcall/grpcdrain"
	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service runs what a test gives it.
type service struct {
	pb.UnimplementedTestServiceServer
	unary func(context.Context) error
	bidi  func(pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.unary(ctx)
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	return s.bidi(stream)
}

// config is a termination of 200 ms, with 29 s until the last call.
func config() drain.Config {
	c := drain.DefaultConfig()
	c.MinimumDrain, c.QuietTime, c.IdleGrace = 200*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	c.GracePeriod, c.Margin = 30*time.Second, time.Second
	return c
}

// running is a Plane that serves.
type running struct {
	*grpcdrain.Plane
	t        *testing.T
	addr     string
	served   chan error
	requests drain.Requests
}

// serve starts a server with the service and, if it is given, the health service.
func serve(t *testing.T, s *service, o grpcdrain.Options, opts ...grpc.ServerOption) *running {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	r := &running{t: t, addr: ln.Addr().String(), served: make(chan error, 1)}
	r.Plane = grpcdrain.New(func(own ...grpc.ServerOption) *grpc.Server {
		server := grpc.NewServer(append(own, opts...)...)
		pb.RegisterTestServiceServer(server, s)
		if h, ok := o.Health.(*health.Server); ok {
			healthpb.RegisterHealthServer(server, h)
		}
		return server
	}, o)
	go func() { r.served <- r.Serve(ln) }()
	t.Cleanup(r.Kill)
	return r
}

// client is a channel to the server.
func (r *running) client(opts ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)
	cc, err := grpc.NewClient("passthrough:///"+r.addr, opts...)
	must.Do(r.t, err)
	r.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// terminate runs a termination to its end.
func (r *running) terminate(c drain.Config) drain.Report {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	report, err := drain.Termination{Plane: r.Plane, Config: c, Trigger: drain.Terminate, Requests: &r.requests, Log: log}.Run(context.Background())
	must.Do(r.t, err)
	if len(report.Faults) > 0 {
		r.t.Errorf("faults %q", report.Faults)
	}
	select {
	case err := <-r.served:
		if err != nil {
			r.t.Errorf("Serve: %v", err)
		}
	case <-time.After(time.Minute):
		r.t.Error("Serve does not return")
	}
	return report
}

func open(t *testing.T, cc *grpc.ClientConn) pb.TestService_FullDuplexCallClient {
	t.Helper()
	stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	must.Do(t, err)
	must.Do(t, stream.Send(&pb.StreamingOutputCallRequest{}))
	return stream
}

func call(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := pb.NewTestServiceClient(cc).UnaryCall(ctx, &pb.SimpleRequest{})
	return err
}

// Calls of every kind that are open at the last call end with UNAVAILABLE, at once and whatever their handlers do.
func TestLastCall(t *testing.T) {
	release := make(chan struct{})
	var causes sync.Map
	began := make(chan struct{}, 4)
	s := serve(t, &service{
		unary: func(ctx context.Context) error {
			began <- struct{}{}
			<-release // it ignores its context
			causes.Store("unary", context.Cause(ctx))
			return nil
		},
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			if _, err := stream.Recv(); err != nil {
				return err
			}
			began <- struct{}{}
			_, err := stream.Recv() // until the last call
			causes.Store("stream", context.Cause(stream.Context()))
			if err == nil || stream.Send(&pb.StreamingOutputCallResponse{}) == nil {
				t.Error("the stream continues after the last call")
			}
			return nil
		},
	}, grpcdrain.Options{})
	cc := s.client()
	errs := make(chan error)
	for range 2 {
		go func() { errs <- call(t.Context(), cc) }()
		stream := open(t, cc)
		go func() {
			_, err := stream.Recv()
			errs <- err
		}()
	}
	for range 4 {
		<-began
	}
	s.requests.Send(drain.Hurry) // last call now
	start := time.Now()
	reports := make(chan drain.Report, 1)
	go func() { reports <- s.terminate(config()) }()
	for range 4 {
		if err := <-errs; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "the server is shutting down" {
			t.Errorf("the client gets %v; want UNAVAILABLE from the server", err)
		}
	}
	report := <-reports
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("handlers that ignore their contexts hold the end for %v", took)
	}
	if report.Verdict != drain.Cut || len(report.Open) != 4 {
		t.Errorf("%s, %+v; want 4 calls cut", report.Verdict, report.Open)
	}
	for _, c := range report.Open {
		if c.Ending != "grpc-status 14" || c.Protocol != "grpc" || !strings.HasPrefix(c.Request, "/grpc.testing.TestService/") || c.Peer == "" {
			t.Errorf("reported as %+v", c)
		}
	}
	close(release)
	for _, kind := range []string{"unary", "stream"} {
		polltest.Eventually(t, kind+": the handler returns", func() bool { _, ok := causes.Load(kind); return ok })
		if cause, _ := causes.Load(kind); !errors.Is(cause.(error), grpcdrain.ErrLastCall) {
			t.Errorf("%s: the context ends with %v", kind, cause)
		}
	}
}

// A handler that watches Draining ends its stream in time, and nothing is cut. The connection of another
// client, which is idle, is closed.
func TestDraining(t *testing.T) {
	s := serve(t, &service{
		unary: func(ctx context.Context) error {
			select {
			case <-grpcdrain.Draining(ctx):
				return errors.New("draining before the drain")
			default:
				return nil
			}
		},
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
			<-grpcdrain.Draining(stream.Context())
			return nil
		},
	}, grpcdrain.Options{})
	idle := s.client(grpc.WithIdleTimeout(0))
	must.Do(t, call(t.Context(), idle))
	stream := open(t, s.client())
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	report := s.terminate(config())
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if report.Verdict != drain.Clean || time.Duration(report.Duration) > 15*time.Second {
		t.Errorf("%s after %v", report.Verdict, report.Duration)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for state := idle.GetState(); state == connectivity.Ready; state = idle.GetState() {
		if !idle.WaitForStateChange(ctx, state) {
			t.Fatal("the idle channel is still connected")
		}
	}
	if grpcdrain.Draining(t.Context()) != nil {
		t.Error("a context that is no handler's drains")
	}
}

// Health checks hold nothing: neither an open Watch nor a client that checks again and again. NOT_SERVING
// comes when the listeners close, or with the drain if so set.
func TestHealth(t *testing.T) {
	for name, early := range map[string]bool{"when listeners close": false, "at the drain": true} {
		t.Run(name, func(t *testing.T) {
			h := health.NewServer()
			s := serve(t, &service{}, grpcdrain.Options{Health: h, NotServingAtDrain: early})
			cc := s.client()
			watch, err := healthpb.NewHealthClient(cc).Watch(t.Context(), &healthpb.HealthCheckRequest{})
			must.Do(t, err)
			if got, err := watch.Recv(); err != nil || got.Status != healthpb.HealthCheckResponse_SERVING {
				t.Fatalf("%v, %v", got, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { // a probe: each on a connection of its own
				for ctx.Err() == nil {
					probe, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = healthpb.NewHealthClient(probe).Check(ctx, &healthpb.HealthCheckRequest{})
					_ = probe.Close()
					time.Sleep(20 * time.Millisecond)
				}
			}()
			must.Do(t, s.Drain(t.Context()))
			got, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{})
			if err != nil || (got.Status == healthpb.HealthCheckResponse_NOT_SERVING) != early {
				t.Errorf("during the drain: %v, %v", got, err)
			}
			report := s.terminate(config())
			if report.Verdict != drain.Clean || report.Late != 0 || time.Duration(report.Duration) > 15*time.Second {
				t.Errorf("%s after %v, %d late", report.Verdict, report.Duration, report.Late)
			}
			if got, err = h.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || got.Status != healthpb.HealthCheckResponse_NOT_SERVING {
				t.Errorf("after the end: %v, %v", got, err)
			}
			for err == nil {
				_, err = watch.Recv()
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("Watch ends with %v", err)
			}
		})
	}
}

// A connection that sends nothing does not keep the others from their GOAWAY, as it does with GracefulStop.
func TestSilentConnection(t *testing.T) {
	s := serve(t, &service{unary: func(context.Context) error { return nil }}, grpcdrain.Options{})
	silent, err := net.Dial("tcp", s.addr)
	must.Do(t, err)
	defer silent.Close()
	cc := s.client()
	must.Do(t, call(t.Context(), cc))
	must.Do(t, s.Drain(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !cc.WaitForStateChange(ctx, connectivity.Ready) {
		t.Fatal("no GOAWAY within 10 s")
	}
	if report := s.terminate(config()); report.Verdict != drain.Clean {
		t.Error(report.Verdict)
	}
}

// After Resume the server serves as before, on the same port, and drains again.
func TestResume(t *testing.T) {
	s := serve(t, &service{
		unary: func(context.Context) error { return nil },
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			<-grpcdrain.Draining(stream.Context())
			return nil
		},
	}, grpcdrain.Options{Health: health.NewServer()})
	if err := call(t.Context(), s.client()); err != nil { // Serve has begun
		t.Fatal(err)
	}
	for range 3 {
		ctx := t.Context()
		err := errors.Join(s.Drain(ctx), s.CloseIdle(ctx, time.Millisecond), s.StopAccepting(ctx))
		if _, lastErr := s.LastCall(ctx, 0); errors.Join(err, lastErr) != nil {
			t.Fatal(err, lastErr)
		}
		if _, err := net.Dial("tcp", s.addr); err == nil {
			t.Error("the listener is open")
		}
		must.Do(t, s.Resume(ctx))
		cc := s.client()
		if err := call(ctx, cc); err != nil {
			t.Errorf("after Resume: %v", err)
		}
		stream := open(t, cc)
		if _, err := call(ctx, cc), s.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("a stream that began after Resume ends with %v", err)
		}
		must.Do(t, s.Resume(ctx))
	}
	if report := s.terminate(config()); report.Verdict != drain.Clean {
		t.Error(report.Verdict)
	}
}

func TestClients(t *testing.T) {
	planetest.Clients(t, func(t *testing.T, round int) (drain.DataPlane, func() (net.Conn, error)) {
		s := serve(t, &service{}, grpcdrain.Options{}, grpc.ConnectionTimeout(300*time.Millisecond))
		return s.Plane, func() (net.Conn, error) { return net.Dial("tcp", s.addr) }
	})
}

// A grpc.Server that is an http.Server's Handler is drained by httpdrain: calls without an answer get UNAVAILABLE
// at the last call, and a client that calls meanwhile loses nothing.
func TestServeHTTP(t *testing.T) {
	began := make(chan struct{}, 1)
	server := grpc.NewServer()
	pb.RegisterTestServiceServer(server, &service{unary: func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		return nil
	}})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	plane := httpdrain.New(&http.Server{Handler: server, Protocols: protocols}, httpdrain.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	served := make(chan error, 1)
	go func() { served <- plane.Serve(ln) }()
	cc, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Do(t, err)
	defer cc.Close()
	result := make(chan error, 1)
	go func() { result <- call(t.Context(), cc) }()
	<-began
	requests := new(drain.Requests)
	requests.Send(drain.Hurry) // last call now
	report, err := drain.Termination{
		Plane: plane, Config: config(), Trigger: drain.Terminate, Requests: requests,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}.Run(t.Context())
	if err != nil || report.Verdict != drain.Cut || len(report.Open) != 1 || report.Open[0].Ending != "grpc-status 14" {
		t.Errorf("%+v, %v", report, err)
	}
	if err := <-result; status.Code(err) != codes.Unavailable {
		t.Errorf("the client gets %v; want UNAVAILABLE", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
