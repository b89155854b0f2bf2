package load

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// grpcServer serves the health service, each call for some time, and returns its address. received gets each call.
func grpcServer(t *testing.T, takes time.Duration, reflects bool) (s *grpc.Server, address string, received chan any) {
	t.Helper()
	received = make(chan any, 10)
	l := nettest.Listen(t, "127.0.0.1:0")
	s = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		received <- request
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
		return handler(ctx, request)
	}))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	if reflects {
		reflection.Register(s)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s, l.Addr().String(), received
}

func clientOf(address string) *traffic.Client {
	return &traffic.Client{ClusterIP: true, Timeout: 5 * time.Second, Targets: func() []string { return []string{address} }}
}

// A call in flight at the end of a gRPC server is lost with UNAVAILABLE, and so is one that no server accepts.
func TestGRPC(t *testing.T) {
	server, address, received := grpcServer(t, 200*time.Millisecond, true)
	r, err := ParseRequest(`GRPC grpc.health.v1.Health/Check -d '{"service": ""}'`)
	must.Do(t, err)
	l := &Load{Requests: []Request{r}, Clients: []*traffic.Client{clientOf(address)}}
	defer l.Close()
	must.Do(t, l.Measure(t.Context(), l.Clients[0]))
	if ref := l.References[0]; ref.Took < 200*time.Millisecond || ref.Bytes != 2 { // field 1: SERVING
		t.Errorf("undisturbed: %+v", ref)
	}
	for len(received) > 0 { // those of Measure
		<-received
	}
	var calling sync.WaitGroup
	calling.Go(func() { l.One(t.Context(), 0, 0) })
	<-received
	server.Stop()
	calling.Wait()
	l.One(t.Context(), 0, 0)
	for i, s := range l.Sent() {
		if s.Reason != "UNAVAILABLE" || i == 0 && (s.Address != address || s.Conn == 0) {
			t.Errorf("call %d: %+v", i, s)
		}
	}
	if _, lost := l.Counts(); lost != 2 {
		t.Errorf("lost %d", lost)
	}
}

func TestGRPCMethods(t *testing.T) {
	_, reflecting, _ := grpcServer(t, 0, true)
	_, silent, _ := grpcServer(t, 0, false)
	file := filepath.Join(t.TempDir(), "health.pb")
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(grpc_health_v1.File_grpc_health_v1_health_proto)}})
	if err == nil {
		err = os.WriteFile(file, set, 0o600)
	}
	must.Do(t, err)
	for _, tt := range []struct{ address, request, descriptors, want string }{
		{reflecting, "GRPC grpc.health.v1.Health/Check", "", ""},
		{silent, "GRPC grpc.health.v1.Health/Check", file, ""},
		{silent, "GRPC grpc.health.v1.Health/Check", "", "the server has no reflection"},
		{silent, "GRPC grpc.health.v1.Health/Check", "nowhere", "read --descriptors"},
		{reflecting, "GRPC a.B/C", "", "has no service a.B"},
		{silent, "GRPC a.B/C", file, "has no service a.B"},
		{reflecting, "GRPC grpc.health.v1.Health/Ask", "", "must be one of Check, "},
		{reflecting, `GRPC grpc.health.v1.Health/Check -d '{"x": 1}'`, "", "encode the body as grpc.health.v1.HealthCheckRequest"},
		{reflecting, `GRPC grpc.health.v1.Health/Check -d '{"service": "x"}'`, "", "NOT_FOUND"},
	} {
		r, err := ParseRequest(tt.request)
		must.Do(t, err)
		l := &Load{Requests: []Request{r}, Descriptors: tt.descriptors}
		client := clientOf(tt.address)
		err = l.Measure(t.Context(), client)
		client.Close()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.request, err, tt.want)
		}
	}
}
