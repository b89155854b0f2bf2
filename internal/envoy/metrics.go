package envoy

import (
	"context"
	"io"
	"net/http"
)

// Metrics are Envoy's own in Prometheus' text format, those that were ever
// written. They are megabytes in a large mesh, and read as they come.
func (p *Plane) Metrics(ctx context.Context) (io.ReadCloser, error) {
	const path = "/stats/prometheus?usedonly"
	resp, err := p.admin.do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, &StatusError{Request: "GET " + path, Status: resp.StatusCode}
	}
	return resp.Body, nil
}
