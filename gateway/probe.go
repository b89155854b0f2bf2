package gateway

import (
	"net/http"
	"strings"
)

// probes are health checks of load balancers and kubelets, by what stands in their User-Agent:
// they never count, or a drain would last as long as somebody checks whether it is over.
// Whoever calls himself so is only the sooner let go.
var probes = []string{
	"ELB-HealthChecker/",          // AWS: ALB, NLB
	"GoogleHC/",                   // Google Cloud
	"kube-probe/",                 // kubelet
	"Load Balancer Agent",         // Azure
	"Cloudflare-Traffic-Manager/", // Cloudflare's load balancing
	"Cloudflare-Healthchecks/",
	"Envoy/HC",
}

func isProbe(r *http.Request) bool {
	agent := r.UserAgent()
	for _, p := range probes {
		if strings.Contains(agent, p) {
			return true
		}
	}
	return false
}
