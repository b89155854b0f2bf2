package admin

import (
	"net"
	"net/netip"
	"strconv"
)

type clusterStatus struct {
	Name     string       `json:"name"`
	Hosts    []hostStatus `json:"host_statuses,omitempty"`
	Breakers struct {
		Thresholds []threshold `json:"thresholds"`
	} `json:"circuit_breakers"`
	ObservabilityName string `json:"observability_name"`
}

type hostStatus struct {
	Address socketAddress `json:"address"`
	Stats   []hostStat    `json:"stats"`
	Health  struct {
		EDS string `json:"eds_health_status"`
	} `json:"health_status"`
	Weight   int      `json:"weight"`
	Locality struct{} `json:"locality"`
}

// hostStat is in protobuf's JSON form: zeros, and the type COUNTER, are omitted, and 64 bits are a string.
type hostStat struct {
	Type  string `json:"type,omitempty"`
	Value uint64 `json:"value,omitempty,string"`
	Name  string `json:"name"`
}

type threshold struct {
	Priority    string `json:"priority,omitempty"`
	Connections uint32 `json:"max_connections"`
	Pending     uint32 `json:"max_pending_requests"`
	Requests    uint32 `json:"max_requests"`
	Retries     uint32 `json:"max_retries"`
}

// clustersJSON is /clusters?format=json, envoy.admin.v3.Clusters.
func (s *Server) clustersJSON(admitted filter) answer {
	var out struct {
		Clusters []clusterStatus `json:"cluster_statuses,omitempty"`
	}
	for _, c := range clustersOf(s.Plane.Listeners()) {
		if !admitted.admits(c.name) {
			continue
		}
		status := clusterStatus{Name: c.name, ObservabilityName: c.name}
		numbers := *c
		for _, host := range c.hosts {
			status.Hosts = append(status.Hosts, numbers.host(host))
			numbers = cluster{} // those of an app with several addresses are with the first one
		}
		for _, priority := range []string{"", "HIGH"} {
			const most = 1<<32 - 1 // noLimit
			status.Breakers.Thresholds = append(status.Breakers.Thresholds, threshold{priority, most, most, most, most})
		}
		out.Clusters = append(out.Clusters, status)
	}
	return indented(out)
}

func (c *cluster) host(address string) hostStatus {
	h := hostStatus{Address: hostAddress(address), Stats: c.stats(), Weight: 1}
	h.Health.EDS = "HEALTHY"
	return h
}

// hostAddress is an app's address; its host may be a name.
func hostAddress(address string) (s socketAddress) {
	if at, err := netip.ParseAddrPort(address); err == nil {
		return newSocketAddress(at)
	}
	host, port, _ := net.SplitHostPort(address)
	n, _ := strconv.ParseUint(port, 10, 16)
	s.Socket.Address, s.Socket.Port = host, uint16(n)
	return s
}
