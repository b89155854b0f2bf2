package mesh

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// fallBack is the data plane without Envoy's admin API, and what it does. Without ports it watches every listener of
// the pod. Their protocols are unknown, so an idle connection holds the hook, until the deadline at most: it would be
// worse to cut a request.
func (h *Hook) fallBack() (drain.DataPlane, string) {
	o := h.o.Fallback
	if len(o.Ports) > 0 {
		return sockets.New(o), "watching the app's ports instead"
	}
	o.Ports, o.Opaque = h.everyPort(), true
	return sockets.New(o), fmt.Sprintf("treating every open connection to ports %v as busy, until the deadline; set --ports", o.Ports)
}

// everyPort lists the ports with a listener, without those of the mesh itself.
func (h *Hook) everyPort() (ports []uint16) {
	not := slices.Concat(envoy.Infrastructure, h.o.LeaveOut,
		[]uint16{istio.OutboundPort, istio.AdminPort, h.o.PilotAgent})
	if _, text, err := net.SplitHostPort(h.o.Admin); err == nil {
		n, _ := strconv.ParseUint(text, 10, 16)
		not = append(not, uint16(n))
	}
	if table, err := sockdiag.OpenTable(); err == nil {
		defer table.Close()
		listeners, _ := table.Listeners()
		for _, s := range listeners {
			if port := s.Local.Port(); !slices.Contains(not, port) {
				ports = append(ports, port)
			}
		}
	}
	if len(ports) == 0 {
		return []uint16{istio.InboundPort}
	}
	return slices.Compact(slices.Sorted(slices.Values(ports)))
}
