package gateway

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults.
const (
	DefaultConnectTimeout      = 10 * time.Second // Istio's connectTimeout
	DefaultMaxIdlePerEndpoint  = 256              // kept connections to one endpoint
	DefaultMaxPerEndpoint      = 10_000           // all connections to one endpoint
	DefaultMaxAttempts         = 3                // Istio's two retries
	defaultUpstreamIdleTimeout = 60 * time.Minute // Envoy's; the endpoints close earlier if they like
	clientIdleTimeout          = time.Hour        // Envoy's, for connections of clients
	headTimeout                = 60 * time.Second // for a request's head; also bounds what slow clients hold
	receiveBuffer              = 256 << 10        // bytes of request bodies that wait for endpoints, of one HTTP/2 connection
	responseBuffer             = 64 << 10         // bytes of one HTTP/2 response that wait for a client; net/http's is 4 MiB
	defaultExpectContinue      = time.Second      // how long an endpoint may take to say 100 before the body is sent anyway
)

// Options of a gateway. The zero value of a duration or number means its
// default.
type Options struct {
	// AccessLog gets one line a request, when it ends, in Istio's default
	// format. A line is one Write; writes do not overlap, and requests wait for
	// them: a logs.Writer does not make them wait. Nil means none.
	AccessLog io.Writer

	// Metrics are scraped beside the gateway's own.
	Metrics []prometheus.Collector

	// Log gets what happens to the gateway, and at debug level what happens to
	// requests. Nil means none.
	Log *slog.Logger

	// ConnectTimeout bounds one attempt to connect to one endpoint.
	ConnectTimeout time.Duration

	// RequestTimeout bounds a request, from its head to the response's last byte,
	// as a route's timeout does in Envoy. Zero means no bound. Upgraded
	// connections are not bounded.
	RequestTimeout time.Duration

	// MaxAttempts bounds how often a connection is tried for one request. 1
	// means no retry.
	MaxAttempts int

	// MaxIdlePerEndpoint bounds the connections kept to one endpoint.
	MaxIdlePerEndpoint int

	// MaxPerEndpoint bounds all connections to one endpoint: beyond it requests fail (503 UO).
	MaxPerEndpoint int

	// TrustedHops is how many proxies stand in front of the gateway. Without any, fields by which a proxy tells
	// of the client are removed from requests.
	TrustedHops int
}

// withDefaults checks o and fills in what was left out.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"connect timeout", &o.ConnectTimeout, DefaultConnectTimeout},
		{"request timeout", &o.RequestTimeout, 0},
	} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %v: must not be negative", d.name, *d.value))
		}
		if *d.value == 0 {
			*d.value = d.preset
		}
	}
	for _, n := range []struct {
		name   string
		value  *int
		preset int
	}{
		{"idle connections per endpoint", &o.MaxIdlePerEndpoint, DefaultMaxIdlePerEndpoint},
		{"attempts to connect", &o.MaxAttempts, DefaultMaxAttempts},
		{"connections per endpoint", &o.MaxPerEndpoint, DefaultMaxPerEndpoint},
		{"trusted hops", &o.TrustedHops, 0},
	} {
		if *n.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d: must not be negative", n.name, *n.value))
		}
		if *n.value == 0 {
			*n.value = n.preset
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, errors.Join(errs...)
}
