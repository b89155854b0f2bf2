package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/grpcdrain"
)

// drained serves HTTP and gRPC alone, and ends by lastcall's library with its defaults.
func drained(ctx context.Context, h http.Handler) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+portGRPC)
	if err != nil {
		return err
	}
	calls := grpcdrain.New(newGRPC, grpcdrain.Options{})
	errs := make(chan error, 1)
	go func() { errs <- calls.Serve(ln) }()
	server := &http.Server{Addr: ":" + portHTTP, Handler: h}
	// Serve has its own signals.
	if _, err := lastcall.Serve(context.WithoutCancel(ctx), server, lastcall.With(calls)); err != nil {
		return err
	}
	return <-errs
}

func newGRPC(opts ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(s, testService{})
	return s
}

// UnaryCall takes as many milliseconds as its response is to have bytes.
func (testService) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	time.Sleep(time.Duration(r.GetResponseSize()) * time.Millisecond)
	return &pb.SimpleResponse{}, nil
}
