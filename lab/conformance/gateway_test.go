package conformance

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/gateway"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

// gated is a gateway in front of gRPC endpoints.
type gated struct {
	plain, tls string
	pool       *gateway.Pool
	signals    chan drain.Signal
}

// nothing is a Source that has nothing to follow.
type nothing struct{}

func (nothing) Pending() string { return "" }

func (nothing) Run(ctx context.Context, synced func()) error {
	synced()
	<-ctx.Done()
	return nil
}

func startGateway(t *testing.T, endpoint net.Addr) *gated {
	t.Helper()
	g, err := gateway.New(gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	certificate := certificatetest.SelfSigned(t, "app.test")
	certificates := new(gateway.Certificates)
	certificates.Set(nil, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil })
	none, err := gateway.PresetNamed("none", 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &gated{pool: g.NewPool(""), signals: make(chan drain.Signal, 1)}
	s.to(t, endpoint)
	g.SetRoutes(gateway.Default(s.pool))
	listening, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, err := g.Run(context.Background(), gateway.RunOptions{
			HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Certificates: certificates, Source: nothing{},
			Termination: none.Termination(patience), Signals: s.signals,
			Listening: func(plain, secure, _ net.Addr) {
				s.plain, s.tls = plain.String(), secure.String()
				close(listening)
			},
		})
		if err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		select {
		case s.signals <- drain.Terminate:
		case <-ended:
		}
		<-ended
		s.pool.Close()
	})
	select {
	case <-listening:
	case <-ended:
		t.FailNow()
	}
	return s
}

func (s *gated) to(t *testing.T, endpoint net.Addr) {
	t.Helper()
	if err := s.pool.Set([]string{endpoint.String()}, gateway.H2C); err != nil {
		t.Fatal(err)
	}
}

// gRPC's interop suite through the gateway and the pipe.
func TestGRPCInteropGateway(t *testing.T) {
	p := startPipe(t, startGRPC(t))
	g := startGateway(t, p.Addr(0))
	for _, way := range []struct {
		name, target string
		options      []grpc.DialOption
	}{
		{"clear", g.plain, nil},
		{"TLS", g.tls, []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}))}},
	} {
		t.Run(way.name, func(t *testing.T) {
			cc := dialGRPC(t, way.target, way.options...)
			for _, c := range interopCases {
				t.Run(c.name, func(t *testing.T) {
					if err := run(func() { c.do(t.Context(), cc) }); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// The gateway's endpoint is drained, and the gateway learns of another when that has long begun.
// No call fails: what the old one has refused is sent to the young one.
func TestGRPCInteropGatewayAcrossADrain(t *testing.T) {
	app := startGRPC(t)
	for _, c := range interopCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			old, young := startPipe(t, app), startPipe(t, app)
			g := startGateway(t, old.Addr(0))
			cc := dialGRPC(t, g.plain, grpc.WithDisableRetry())

			// Thousands of cancellations a second are an attack to net/http.
			callAcrossADrain(t, func() { c.do(t.Context(), cc) }, time.Millisecond, old, func(more func()) {
				more()
				g.to(t, young.Addr(0))
			})
		})
	}
}
