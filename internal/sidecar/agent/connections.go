package agent

import (
	"net/http"

	"github.com/lastcall-dev/lastcall/internal/sidecar/admin"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// connections is /connections of the admin API, for pods without an admin port. Request lines must not leave the pod.
func (s *status) connections(w http.ResponseWriter, r *http.Request) {
	p := s.metrics.pipe()
	if p == nil {
		http.Error(w, "not available with a real Envoy: use the admin port of Envoy", http.StatusNotFound)
		return
	}
	media, body, err := admin.WriteConnections(p.Connections(), r.URL.Query().Get("format"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", media)
	_, _ = w.Write(body)
}

// pipe is the data plane, if it is the pipe and has started.
func (m *metrics) pipe() *pipe.Pipe {
	if plane := m.plane.Load(); plane != nil {
		p, _ := (*plane).(*pipe.Pipe)
		return p
	}
	return nil
}
