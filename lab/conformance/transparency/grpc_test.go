package transparency

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// grpcRows are calls of gRPC's health service: one, one that is refused by a trailer alone, and a stream that the app ends.
func (p *place) grpcRows() (rows []*row) {
	at := p.port()
	service := health.NewServer()
	service.SetServingStatus("up", grpc_health_v1.HealthCheckResponse_SERVING)
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, service)
	listener := p.listen(at)
	go func() { _ = s.Serve(listener) }()
	p.t.Cleanup(s.Stop)
	for name, call := range map[string]func(context.Context, grpc_health_v1.HealthClient) []string{
		"calls": func(ctx context.Context, c grpc_health_v1.HealthClient) (words []string) {
			for _, name := range []string{"up", "none", "up"} {
				response, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
				words = append(words, grpcWord(response, err))
			}
			return words
		},
		"a stream": func(ctx context.Context, c grpc_health_v1.HealthClient) []string {
			stream, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "up"})
			if err != nil {
				return []string{grpcWord(nil, err)}
			}
			response, err := stream.Recv()
			return []string{grpcWord(response, err)}
		},
		"a deadline": func(ctx context.Context, c grpc_health_v1.HealthClient) []string {
			ctx, cancel := context.WithTimeout(ctx, 10*tick)
			defer cancel()
			stream, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "none"})
			if err != nil {
				return []string{grpcWord(nil, err)}
			}
			first, err := stream.Recv()
			_, second := stream.Recv()
			return []string{grpcWord(first, err), grpcWord(nil, second)}
		},
	} {
		rows = append(rows, &row{name: "grpc-go/grpc-go/" + name, do: func(mode string) (outcome, error) {
			ctx, cancel := context.WithTimeout(p.t.Context(), limit)
			defer cancel()
			conn, err := grpc.NewClient("passthrough:///"+p.address(at, mode), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return p.dial(mode)(ctx, "tcp", address) }))
			if err != nil {
				return outcome{}, err
			}
			defer conn.Close()
			return outcome{words: call(ctx, grpc_health_v1.NewHealthClient(conn))}, nil
		}})
	}
	return rows
}

func grpcWord(response *grpc_health_v1.HealthCheckResponse, err error) string {
	if err != nil {
		return fmt.Sprint("closed:", status.Code(err))
	}
	return "200:" + response.GetStatus().String()
}
