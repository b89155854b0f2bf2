package pipe

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
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

// A message in flight is worth waiting for; a body that has had its last one is whole.
func TestEnvelopes(t *testing.T) {
	message := "\x00\x00\x00\x00\x05hello"
	trailers := "\x80\x00\x00\x00\x10grpc-status: 0\r\n"
	unavailable := string(grpc.Append(nil, 0x80, []byte("grpc-status: 14\r\ngrpc-message: "+accesslog.MessageLastCall+"\r\n")))
	for _, tt := range []struct {
		name, before, after, body, ending string
		whole                             bool
	}{
		{"in between messages", chunk(message), "", message + unavailable, "grpc-status 14", true},
		{"within a message that ends", chunk(message[:7]), chunk(message[7:]), message + unavailable, "grpc-status 14", true},
		{"within a prefix that ends", chunk(message[:2]), chunk(message[2:]), message + unavailable, "grpc-status 14", true},
		{"within a message that does not", chunk(message[:7]), "", message[:7], "truncated", false},
		{"after the trailers", chunk(message + trailers), "", message + trailers, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app := startScripted(t, chunkedHead("application/grpc-web+proto"))
			p := startPipe(t, app, HTTP)
			c := dialPipe(t, p)
			c.send(get("/"))
			app.send(tt.before)
			resp := c.head()
			first := part(t, resp, 1)
			report := lastCall(t, p, 300*time.Millisecond)
			if tt.after != "" {
				awaitCloseRequested(t, p)
				app.send(tt.after)
			}
			rest, err := io.ReadAll(resp.Body)
			if body := first + string(rest); body != tt.body || (err == nil) != tt.whole {
				t.Errorf("%q, %v; want %q, whole %v", body, err, tt.body, tt.whole)
			}
			wantEndings(t, report(), tt.ending)
			<-app.got
		})
	}
}
