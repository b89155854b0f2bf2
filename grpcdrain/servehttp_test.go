package grpcdrain_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
)

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
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- plane.Serve(ln) }()
	cc, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	result := make(chan error, 1)
	go func() { result <- call(t.Context(), cc) }()
	<-began
	signals := make(chan drain.Signal, 1)
	signals <- drain.Terminate // the second SIGTERM: last call now
	report, err := drain.Termination{
		Plane: plane, Config: config(), Trigger: drain.Terminate, Signals: signals,
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
