// Command grpc-go is a server of docs/http-servers.md, with grpc-go's test service: UnaryCall takes 1.5 s,
// EmptyCall no time. ON_TERM is its behaviour at SIGTERM: stop (Stop, the default), close (GracefulStop) or drain
// (lastcall's package grpcdrain).
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/grpcdrain"
)

func main() {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", os.Getenv("PORT")))
	if err == nil {
		err = serve(l, os.Getenv("ON_TERM"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpc-go:", err)
		os.Exit(1)
	}
}

// serve serves until SIGTERM, and ends as onTerm states.
func serve(l net.Listener, onTerm string) error {
	if onTerm == "drain" {
		plane := grpcdrain.New(newServer, grpcdrain.Options{})
		served := make(chan error, 1)
		go func() { served <- plane.Serve(l) }()
		_, err := lastcall.Run(context.Background(), plane)
		return errors.Join(err, <-served)
	}
	s := newServer()
	stop := s.Stop
	if onTerm == "close" {
		stop = s.GracefulStop
	}
	ctx, forget := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer forget()
	context.AfterFunc(ctx, stop)
	return s.Serve(l)
}

func newServer(options ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(s, service{})
	reflection.Register(s)
	return s
}

type service struct {
	pb.UnimplementedTestServiceServer
}

func (service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	select {
	case <-time.After(1500 * time.Millisecond):
		return &pb.SimpleResponse{Username: "hall"}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }
