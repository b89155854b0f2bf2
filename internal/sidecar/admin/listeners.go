package admin

import (
	"net/http"
	"net/netip"
	"strings"
)

type socketAddress struct {
	Socket struct {
		Address string `json:"address"`
		Port    uint16 `json:"port_value"`
	} `json:"socket_address"`
}

func newSocketAddress(a netip.AddrPort) (s socketAddress) {
	s.Socket.Address, s.Socket.Port = a.Addr().String(), a.Port()
	return s
}

type listenerStatus struct {
	Name       string          `json:"name"`
	Local      socketAddress   `json:"local_address"`
	Additional []socketAddress `json:"additional_local_addresses,omitempty"`
}

// listeners lists them, closed ones too, as Envoy does.
func (s *Server) listeners(q query) answer {
	format, _ := q.get("format")
	if format != "json" { // in Envoy every other format is text
		var b strings.Builder
		for _, l := range s.Plane.Listeners() {
			for _, a := range addresses(&l) {
				b.WriteString(nameOf(&l) + "::" + a.String() + "\n")
			}
		}
		return text(http.StatusOK, b.String())
	}
	var out struct {
		Listeners []listenerStatus `json:"listener_statuses,omitempty"`
	}
	for _, l := range s.Plane.Listeners() {
		all := addresses(&l)
		status := listenerStatus{Name: nameOf(&l), Local: newSocketAddress(all[0])}
		for _, a := range all[1:] {
			status.Additional = append(status.Additional, newSocketAddress(a))
		}
		out.Listeners = append(out.Listeners, status)
	}
	return indented(out)
}
