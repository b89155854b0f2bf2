package agent

import (
	"net/http"

	"github.com/lastcall-dev/lastcall/internal/admin"
	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// listConnections lists the pipe's connections for the admin API.
func listConnections(p *pipe.Pipe) []admin.Connection {
	list := p.Connections()
	out := make([]admin.Connection, len(list))
	for i, c := range list {
		to := &out[i]
		*to = admin.Connection{
			Peer: c.Peer, Listener: c.Listener, Protocol: c.Protocol, State: string(c.State),
			AgeMs: c.Age.Milliseconds(), IdleMs: c.Idle.Milliseconds(), App: c.App,
			Received: c.Received, Sent: c.Sent, Open: c.Open,
		}
		if c.TLSVersion+c.ServerName+c.ALPN != "" {
			to.TLS = &admin.ConnectionTLS{Version: c.TLSVersion, ServerName: c.ServerName, ALPN: c.ALPN, PeerSubject: c.PeerSubject}
		}
		for _, r := range c.Requests {
			to.Requests = append(to.Requests, admin.OpenRequest{Request: r.Line, AgeMs: r.Age.Milliseconds(), Status: r.Status})
		}
	}
	return out
}

func (p adminPlane) Connections() []admin.Connection { return listConnections(p.pipe) }

// connections is /connections of the admin API, for pods without an admin port. Request lines must not leave the pod.
func (s *status) connections(w http.ResponseWriter, r *http.Request) {
	p := s.metrics.pipe()
	if p == nil {
		http.Error(w, "not available with a real Envoy: use the admin port of Envoy", http.StatusNotFound)
		return
	}
	media, body, err := admin.WriteConnections(listConnections(p), r.URL.Query().Get("format"))
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
