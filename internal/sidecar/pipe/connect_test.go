package pipe

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// A stream of gRPC-Web or of the Connect protocol that is not finished ends with
// UNAVAILABLE, so that its client tries again, in between two messages.
func TestConnectRPC(t *testing.T) {
	type text = wrapperspb.StringValue
	const procedure = "/chat.Chat/Listen"
	for _, tt := range []struct {
		name    string
		options []connect.ClientOption
		ending  string
	}{
		{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}, "grpc-status 14"},
		{"Connect", nil, "unavailable"},
		{"Connect, JSON", []connect.ClientOption{connect.WithProtoJSON()}, "unavailable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			handler := connect.NewServerStreamHandler(procedure, func(ctx context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
				for _, word := range []string{"hello ", r.Msg.Value} {
					if err := s.Send(wrapperspb.String(word)); err != nil {
						return err
					}
				}
				<-ctx.Done() // it would continue
				return ctx.Err()
			})
			p := startPipe(t, startHTTP(t, handler.ServeHTTP), HTTP)
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := connect.NewClient[text, text](&http.Client{Transport: transport}, "http://"+p.Addr(0).String()+procedure, tt.options...)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			stream, err := client.CallServerStream(ctx, connect.NewRequest(wrapperspb.String("world")))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			got := ""
			for got != "hello world" && stream.Receive() {
				got += stream.Msg().Value
			}
			if got != "hello world" {
				t.Fatalf("%q, %v", got, stream.Err())
			}
			report := lastCall(t, p, patience)
			if stream.Receive() {
				t.Errorf("a message too many: %v", stream.Msg())
			}
			var e *connect.Error
			if err := stream.Err(); !errors.As(err, &e) || e.Code() != connect.CodeUnavailable || e.Message() != accesslog.MessageLastCall {
				t.Errorf("the client sees %v", err)
			}
			wantEndings(t, report(), tt.ending)
		})
	}
}
