package gateway

import (
	"net/http"
	"strings"
)

// probes are health checks of load balancers and kubelets, by how their User-Agent begins:
// they never count, or a drain would last as long as somebody checks whether it is over.
var probes = []string{
	"ELB-HealthChecker/",                 // AWS: ALB, NLB
	"GoogleHC/",                          // Google Cloud
	"kube-probe/",                        // kubelet
	"Load Balancer Agent",                // Azure
	"Mozilla/5.0 (compatible;Cloudflare", // Cloudflare-Traffic-Manager and -Healthchecks
	"Envoy/HC",
}

func isProbe(r *http.Request) bool {
	agent := r.UserAgent()
	for _, p := range probes {
		if strings.HasPrefix(agent, p) {
			return true
		}
	}
	return false
}
