package envoy

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Metrics are Envoy's own in Prometheus' text format, those that were ever written. In a large mesh they are megabytes,
// so they are streamed.
func (p *Plane) Metrics(ctx context.Context) (io.ReadCloser, error) {
	const path = "/stats/prometheus?usedonly"
	resp, err := p.admin.do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("envoy's admin: GET %s: unexpected status %d", path, resp.StatusCode)
	}
	return resp.Body, nil
}
