package grpcdrain_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/grpcdrain"
	"github.com/lastcall-dev/lastcall/internal/must"
)

// Servers are replaced one after the other while clients call, and no call fails: without retries, without
// waiting for readiness, with both of grpc's usual balancers. The clients learn of the change 100 ms after the
// servers do.
func TestReplacedServersLoseNoCall(t *testing.T) {
	const replacements, callers = 5, 8
	web := httptest.NewUnstartedServer(nil) // for its certificate
	web.StartTLS()
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	for _, balancer := range []string{"pick_first", "round_robin"} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", balancer, secure), func(t *testing.T) {
				t.Parallel()
				var opts []grpc.ServerOption
				creds := insecure.NewCredentials()
				if secure {
					opts = append(opts, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates})))
					creds = credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "example.com"})
				}
				start := func() *running {
					return serve(t, &service{unary: func(ctx context.Context) error {
						if p, ok := peer.FromContext(ctx); !ok || p.Addr.Network() != "tcp" {
							t.Errorf("peer %v", p)
						}
						time.Sleep(rand.N(20 * time.Millisecond))
						return nil
					}}, grpcdrain.Options{}, opts...)
				}
				replicas := []*running{start(), start()}
				known := manual.NewBuilderWithScheme("replicas")
				addresses := func() (s resolver.State) {
					for _, r := range replicas {
						s.Addresses = append(s.Addresses, resolver.Address{Addr: r.addr})
					}
					return s
				}
				known.InitialState(addresses())
				cc, err := grpc.NewClient("replicas:///", grpc.WithResolvers(known), grpc.WithTransportCredentials(creds),
					grpc.WithDisableRetry(), grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [{%q: {}}]}`, balancer)))
				must.Do(t, err)
				defer cc.Close()
				ctx, stop := context.WithCancel(t.Context())
				var calls, failed atomic.Int64
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for ctx.Err() == nil {
							if err := call(t.Context(), cc); err != nil {
								failed.Add(1)
								t.Error(err)
							}
							calls.Add(1)
						}
					})
				}
				for n := 0; n < replacements || n < 20*replacements && calls.Load() < 100; n++ { // a busy machine makes few calls
					old := replicas[0]
					replicas = append(replicas[1:], start())
					after := addresses()
					time.AfterFunc(100*time.Millisecond, func() { known.UpdateState(after) })
					if report := old.terminate(config()); report.Verdict != drain.Clean {
						t.Errorf("%s: %+v", report.Verdict, report)
					}
				}
				stop()
				all.Wait()
				t.Logf("%d calls, %d failed", calls.Load(), failed.Load())
				if calls.Load() < 100 {
					t.Errorf("%d calls prove nothing", calls.Load())
				}
			})
		}
	}
}
