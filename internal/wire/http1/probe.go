package http1

import (
	"bytes"
	"slices"
)

// probeAgents are User-Agents whose requests never count, neither as busy nor as arrivals: they never stop.
var probeAgents = [][]byte{
	[]byte("kube-probe/"),                 // the kubelet's probes
	[]byte("Prometheus/"),                 // scrapes
	[]byte("vm_promscrape"),               // VictoriaMetrics' scrapes
	[]byte("ELB-HealthChecker/"),          // AWS: ALB, NLB
	[]byte("GoogleHC/"),                   // Google Cloud
	[]byte("Envoy/HC"),                    // Envoy's health checks
	[]byte("HAProxy/healthcheck"),         // HAProxy's, if configured
	[]byte("Azure Traffic Manager"),       // Azure
	[]byte("Load Balancer Agent"),         // Azure's load balancer
	[]byte("Cloudflare-Traffic-Manager/"), // Cloudflare's load balancing
	[]byte("Cloudflare-Healthchecks/"),    // and health checks
	[]byte("Datadog Agent/"),              // its checks
	[]byte("consul-health-check"),         // Consul, if configured
	[]byte("Blackbox Exporter"),           // Prometheus' prober
	[]byte("UptimeRobot/"),                // monitors from outside
	[]byte("Pingdom.com_bot_version"),     // the same
}

// IsProbe reports whether a User-Agent is that of a health check or of a scrape, which does not count. Some begin with
// a browser's: "Mozilla/5.0 (compatible; ".
func IsProbe(userAgent []byte) bool {
	if _, own, isWrapped := bytes.Cut(userAgent, []byte("(compatible;")); isWrapped {
		userAgent = bytes.TrimPrefix(own, []byte(" "))
	}
	return slices.ContainsFunc(probeAgents, func(prefix []byte) bool { return bytes.HasPrefix(userAgent, prefix) })
}
