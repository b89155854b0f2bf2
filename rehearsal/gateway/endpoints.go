package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

const (
	connectTimeout = 10 * time.Second // Istio's connectTimeout
	maxIdle        = 256              // kept connections to one endpoint
)

// endpoint is the address of a pod. It has a Transport of its own, so that its idle connections can be closed without
// those of other endpoints.
type endpoint struct {
	address   string
	transport *http.Transport
	removed   atomic.Bool
}

// connectError means that no connection was made and nothing was sent.
type connectError struct {
	address string
	err     error
}

func (e *connectError) Error() string {
	return fmt.Sprintf("connect to endpoint %s: %v", e.address, e.err)
}
func (e *connectError) Unwrap() error { return e.err }

func newEndpoint(address string) *endpoint {
	dialer := &net.Dialer{Timeout: connectTimeout}
	return &endpoint{address: address, transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &connectError{address: address, err: err}
			}
			return &conn{TCPConn: c.(*net.TCPConn)}, nil
		},
		DisableCompression:  true, // the client negotiates compression with the endpoint
		MaxIdleConnsPerHost: maxIdle,
	}}
}

// remove closes the idle connections. Requests in flight continue.
func (ep *endpoint) remove() {
	ep.removed.Store(true)
	ep.transport.CloseIdleConnections()
}

// release is called when a request to ep has ended. A Transport keeps idle connections again as soon as it gets a
// request, such as one that was on its way when the endpoint was removed.
func (ep *endpoint) release() {
	if ep.removed.Load() {
		ep.transport.CloseIdleConnections()
	}
}

// SetEndpoints replaces the endpoints by addresses, each host:port. Endpoints that remain keep their connections. An
// endpoint that leaves gets no new requests, and its idle connections are closed; requests in flight continue.
func (g *Gateway) SetEndpoints(addresses []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := *g.endpoints.Load()
	var after []*endpoint
	var added, removed []string
	for _, address := range addresses {
		has := func(ep *endpoint) bool { return ep.address == address }
		if slices.ContainsFunc(after, has) {
			continue
		}
		if i := slices.IndexFunc(before, has); i >= 0 {
			after = append(after, before[i])
			continue
		}
		after = append(after, newEndpoint(address))
		added = append(added, address)
	}
	g.endpoints.Store(&after)
	for _, ep := range before {
		if !slices.Contains(after, ep) {
			ep.remove()
			removed = append(removed, ep.address)
		}
	}
	if len(added)+len(removed) > 0 {
		g.log.Info("endpoints changed", "added", added, "removed", removed, "count", len(after))
	}
}

// pick returns the next endpoint (round robin), if possible one that is not in tried. It is nil if there is none.
func (g *Gateway) pick(tried []*endpoint) *endpoint {
	list := *g.endpoints.Load()
	if len(list) == 0 {
		return nil
	}
	start := int((g.next.Add(1) - 1) % uint64(len(list)))
	for i := range list {
		if ep := list[(start+i)%len(list)]; !slices.Contains(tried, ep) {
			return ep
		}
	}
	return list[start]
}
