package grpcdrain_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/grpcdrain"
)

// clock streams a message every 10 ms, until its client goes or the server drains.
type clock struct {
	pb.UnimplementedTestServiceServer
}

func (clock) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-grpcdrain.Draining(stream.Context()):
			return nil // the client opens the stream again, on another server
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}

func Example() {
	checks := health.NewServer()
	plane := grpcdrain.New(func(opts ...grpc.ServerOption) *grpc.Server {
		s := grpc.NewServer(opts...)
		pb.RegisterTestServiceServer(s, clock{})
		healthpb.RegisterHealthServer(s, checks)
		return s
	}, grpcdrain.Options{Health: checks})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- plane.Serve(ln) }()

	// A client reads the stream, and has its first message when SIGTERM comes.
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cc.Close()
	stream, err := pb.NewTestServiceClient(cc).StreamingOutputCall(context.Background(), &pb.StreamingOutputCallRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	read := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				read <- err
				return
			}
		}
	}()

	signals := make(chan drain.Signal, 1)
	signals <- drain.Terminate // in place of SIGTERM
	report, err := lastcall.Run(context.Background(), plane,
		lastcall.WithSignals(signals),
		lastcall.WithMinimumDrain(50*time.Millisecond), lastcall.WithQuietTime(50*time.Millisecond), // an example has no load balancer
		lastcall.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(report.Verdict, err)
	fmt.Println("served:", <-served)
	fmt.Println("read:", <-read)
	// Output:
	// clean <nil>
	// served: <nil>
	// read: EOF
}
