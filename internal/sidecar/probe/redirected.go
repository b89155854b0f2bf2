package probe

import (
	"encoding/json"
	"fmt"
)

// ParseAll reads ISTIO_KUBE_APP_PROBERS: an object of paths and probes. An empty text has none.
func ParseAll(text string) (map[string]*Probe, error) {
	if text == "" {
		return nil, nil
	}
	var p map[string]*Probe
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
