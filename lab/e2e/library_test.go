//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// TestLibrary replaces replicas of a program that serves HTTP and gRPC, without any sidecar, under load through its
// Service, until 10,000 requests of each protocol have been made: with lastcall's library none is lost. The same program
// with Shutdown and GracefulStop, and without any handling of SIGTERM, shows what is lost otherwise.
func TestLibrary(t *testing.T) {
	const rate, name = 200, "web"
	for _, mode := range []string{"drain", "shutdown", "exit"} {
		requests := 10_000
		if mode == "exit" && !*comparisons {
			requests = 4_000 // enough for a loss
		}
		if mode == "shutdown" && !compares(t, mode) {
			continue
		}
		t.Run(mode, func(t *testing.T) {
			n := newNamespace(t, map[string]string{})
			n.Apply(app{name: name, image: "local/talk:" + *tag, args: []string{"app", "-on-term", mode}, replicas: 4}.manifest() + `---
apiVersion: v1
kind: Service
metadata: {name: web-grpc}
spec:
  selector: {app: web}
  ports: [{name: grpc, port: 90, targetPort: 9090}]
`)
			n.Available(name)
			http1, http2 := n.address(name, 80), n.address("web-grpc", 90)
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(requests)*time.Second/rate+time.Second)
			defer stop()
			var web, calls *loadtest.Load
			var loads sync.WaitGroup
			loads.Go(func() { web = load(ctx, "http://"+http1, rate) })
			loads.Go(func() { calls = loadGRPC(ctx, t, http2, rate) })
			rollouts := n.restartUntil(func(int) bool { return ctx.Err() != nil }, 0, name)
			loads.Wait()
			t.Logf("%s: HTTP: %v; gRPC: %v; %d rollouts, %.1f s each", mode, web, calls, len(rollouts), mean(rollouts).Seconds())
			if web.Requests < requests || calls.Requests < requests || len(rollouts) == 0 {
				t.Errorf("%d and %d requests, %d rollouts prove nothing", web.Requests, calls.Requests, len(rollouts))
			}
			if lost := web.Failed() + calls.Failed(); mode == "drain" && lost > 0 || mode == "exit" && lost == 0 {
				t.Errorf("%d requests lost", lost)
			}
		})
	}
}

// address of a Service: kube-proxy chooses one of its pods for each connection.
func (n *namespace) address(service string, port int) string {
	n.T.Helper()
	s, err := client.CoreV1().Services(n.Name).Get(n.T.Context(), service, metav1.GetOptions{})
	must.Do(n.T, err)
	address := net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(port))
	n.Until("served at its Service", func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	return address
}

// loadGRPC is load with unary calls over 8 channels, which reconnect but do not retry.
func loadGRPC(ctx context.Context, t *testing.T, address string, rate int) *loadtest.Load {
	var channels []pb.TestServiceClient
	for range 8 {
		cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
		if err != nil {
			t.Error(err)
			return &loadtest.Load{}
		}
		defer cc.Close()
		channels = append(channels, pb.NewTestServiceClient(cc))
	}
	return loadtest.AtRate(ctx, rate, func(i int) (why string) {
		duration, err := time.ParseDuration(durations[i%len(durations)] + "s")
		if err != nil {
			return err.Error()
		}
		once, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := channels[i%len(channels)].UnaryCall(once, &pb.SimpleRequest{ResponseSize: int32(duration.Milliseconds())}); err != nil {
			return fmt.Sprintf("%s %.160s", status.Code(err), status.Convert(err).Message())
		}
		return ""
	})
}
