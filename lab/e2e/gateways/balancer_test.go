//go:build e2e

package gateways

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// balancer is a load balancer of connections: each goes to the next endpoint that was ready some time ago, since real ones
// learn of a change late. Connections that are open stay where they are.
type balancer struct {
	mu        sync.Mutex
	endpoints []string
	next      int
}

// balance follows the EndpointSlices of a Service until ctx ends.
func balance(ctx context.Context, t *testing.T, namespace, service string, lag time.Duration) *balancer {
	t.Helper()
	b := &balancer{endpoints: endpoints(ctx, t, namespace, service)}
	if len(b.endpoints) == 0 {
		t.Fatalf("the Service %s has no ready endpoint", service)
	}
	go func() {
		for ctx.Err() == nil {
			now := endpoints(ctx, t, namespace, service)
			time.AfterFunc(lag, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				if len(now) > 0 {
					b.endpoints = now
				}
			})
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return b
}

// endpoints returns the addresses that are ready.
func endpoints(ctx context.Context, t *testing.T, namespace, service string) (out []string) {
	slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return nil
	}
	for _, s := range slices.Items {
		for _, port := range s.Ports {
			if len(s.Ports) > 1 && (port.Name == nil || *port.Name != "http" && *port.Name != "http2") {
				continue // of HTTPS, or for probes
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					out = append(out, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	return out
}

// DialContext connects to the next endpoint, as http.Transport's.
func (b *balancer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	b.mu.Lock()
	address := b.endpoints[b.next%len(b.endpoints)]
	b.next++
	b.mu.Unlock()
	d := net.Dialer{Timeout: 5 * time.Second}
	return d.DialContext(ctx, network, address)
}
