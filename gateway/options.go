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
	defaultUpstreamIdleTimeout = 60 * time.Minute // Envoy's; endpoints may close earlier
	clientIdleTimeout          = time.Hour        // Envoy's, of client connections
	headTimeout                = 60 * time.Second // until a request's head has arrived; limits slow clients
	receiveBuffer              = 256 << 10        // bytes of request bodies buffered for endpoints, per HTTP/2 connection
	responseBuffer             = 64 << 10         // bytes of a response buffered for a client, per HTTP/2 stream; net/http's default is 4 MiB
	defaultExpectContinue      = time.Second      // how long to wait for an endpoint's 100 before sending the body
)

// Options of a gateway. The zero value of a duration or number means its
// default.
type Options struct {
	// AccessLog receives one line per request, when it ends, in Istio's default format. A line is one Write; writes
	// do not overlap. Requests wait for them, unless it is a logs.Writer. Nil means no access log.
	AccessLog io.Writer

	// Metrics are served in addition to the gateway's own.
	Metrics []prometheus.Collector

	// Log receives the gateway's log, at debug level also of requests. Nil means no log.
	Log *slog.Logger

	// ConnectTimeout limits one attempt to connect to an endpoint.
	ConnectTimeout time.Duration

	// RequestTimeout limits a request, from its head to the last byte of the response, as a route's timeout does in
	// Envoy. Zero means no limit. Upgraded connections have no limit.
	RequestTimeout time.Duration

	// MaxAttempts limits how many endpoints are tried for one request. 1 means no retry.
	MaxAttempts int

	// MaxIdlePerEndpoint limits the idle connections to one endpoint.
	MaxIdlePerEndpoint int

	// MaxPerEndpoint limits all connections to one endpoint. Requests beyond it fail (503 UO).
	MaxPerEndpoint int

	// TrustedHops is the number of proxies in front of the gateway. If it is 0, the fields in which a proxy
	// describes its client are removed from requests.
	TrustedHops int
}

// withDefaults validates o and sets the defaults.
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
