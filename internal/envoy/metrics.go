package envoy

import (
	"context"
	"net/http"
)

// Metrics are Envoy's own in Prometheus' text format, those that were ever
// written.
func (p *Plane) Metrics(ctx context.Context) ([]byte, error) {
	return p.admin.call(ctx, http.MethodGet, "/stats/prometheus?usedonly")
}
