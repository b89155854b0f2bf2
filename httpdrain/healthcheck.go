package httpdrain

import (
	"net/http"
	"slices"
	"strings"
)

// healthCheckers are health checks of load balancers and kubelets, by a part of their User-Agent.
var healthCheckers = []string{
	"ELB-HealthChecker/",          // AWS: ALB, NLB
	"GoogleHC/",                   // Google Cloud
	"kube-probe/",                 // kubelet
	"Load Balancer Agent",         // Azure
	"Cloudflare-Traffic-Manager/", // Cloudflare's load balancing
	"Cloudflare-Healthchecks/",
	"Envoy/HC",
}

// IsHealthCheck reports whether the User-Agent is that of a load balancer's or kubelet's health check,
// for Options.Uncounted: health checks arrive until the pod has ended, and must not delay the end. The
// drain does not wait for a client that pretends to be one.
func IsHealthCheck(r *http.Request) bool {
	agent := r.UserAgent()
	return slices.ContainsFunc(healthCheckers, func(part string) bool { return strings.Contains(agent, part) })
}
