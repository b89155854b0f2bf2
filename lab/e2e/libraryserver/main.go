// Libraryserver is an HTTP server and a gRPC server in one process, without any sidecar, that ends in one of three
// ways at SIGTERM: the rollouts of the end-to-end tests compare them.
//
//	libraryserver die        as http.ListenAndServe and grpc.Server.Serve alone do: at once
//	libraryserver shutdown   with http.Server.Shutdown and grpc.Server.GracefulStop, as most programs do
//	libraryserver drain      with lastcall's library
//
// With tls as a second argument the HTTP server terminates TLS, with a certificate that it has signed itself.
//
// GET or POST /delay/SECONDS answers after that time, and so does grpc.testing.TestService/UnaryCall with the number of
// milliseconds in its request's response_size.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

const httpAddress, grpcAddress = ":8080", ":9090"

// withTLS makes the HTTP server terminate TLS.
var withTLS bool

var modes = map[string]func() error{"die": die, "shutdown": shutdown, "drain": drained}

func main() {
	mode := modes["drain"]
	if len(os.Args) > 1 {
		mode = modes[os.Args[1]]
	}
	if withTLS = len(os.Args) == 3 && os.Args[2] == "tls"; mode == nil || len(os.Args) > 2 && !withTLS {
		fmt.Fprintln(os.Stderr, "usage: libraryserver die|shutdown|drain [tls]")
		os.Exit(2)
	}
	if err := mode(); err != nil {
		slog.Error("libraryserver", "error", err)
		os.Exit(1)
	}
}

func newHTTP() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/get", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}\n") })
	mux.HandleFunc("/delay/{seconds}", func(w http.ResponseWriter, r *http.Request) {
		seconds, err := strconv.ParseFloat(r.PathValue("seconds"), 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(time.Duration(seconds * float64(time.Second)))
		_, _ = io.WriteString(w, "{}\n")
	})
	return &http.Server{Addr: httpAddress, Handler: mux}
}

func newGRPC(opts ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(s, service{})
	return s
}

type service struct {
	pb.UnimplementedTestServiceServer
}

func (service) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	time.Sleep(time.Duration(r.GetResponseSize()) * time.Millisecond)
	return &pb.SimpleResponse{}, nil
}

// start serves both until the first fails or is ended.
func start(httpServer *http.Server, grpcServer *grpc.Server) (<-chan error, error) {
	ln, err := net.Listen("tcp", grpcAddress)
	if err != nil {
		return nil, err
	}
	errs := make(chan error, 2)
	go func() { errs <- grpcServer.Serve(ln) }()
	if withTLS {
		if httpServer.TLSConfig, err = ownTLS(); err != nil {
			return nil, err
		}
		go func() { errs <- httpServer.ListenAndServeTLS("", "") }()
		return errs, nil
	}
	go func() { errs <- httpServer.ListenAndServe() }()
	return errs, nil
}

func die() error {
	errs, err := start(newHTTP(), newGRPC())
	if err != nil {
		return err
	}
	return <-errs
}
