package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sideport"
)

// Probes are the app's probes and httpGet hooks that an injector redirects to the status port, by their path there, for
// example /app-health/app/readyz. They reach the app on loopback, without capture and TLS, and do not count as traffic.
type Probes map[string]*probe.Probe

// ParseProbes reads ISTIO_KUBE_APP_PROBERS: an object of paths and probes. An empty text has none.
func ParseProbes(text string) (Probes, error) {
	if text == "" {
		return nil, nil
	}
	var p Probes
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf(`read ISTIO_KUBE_APP_PROBERS: %w; must be {"/app-health/NAME/readyz": {"httpGet": {"path": "/", "port": 8080}}, …}`, err)
	}
	for path, one := range p {
		switch err := one.Validate(); {
		case err != nil:
			return nil, fmt.Errorf("read ISTIO_KUBE_APP_PROBERS: %s: %w", path, err)
		case one.Exec != nil:
			return nil, fmt.Errorf("read ISTIO_KUBE_APP_PROBERS: %s is an exec probe, which runs in the app's container only",
				path)
		}
	}
	return p, nil
}

// ServeHTTP responds as the app does. A probe that fails to reach the app is a 500, as in Istio's agent.
func (p Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := p[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(one.Timeout() + sideport.WriteTime))
	code, err := one.Run(r.Context(), r.UserAgent())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
}
