package counters

import "bytes"

// probeAgents are User-Agents whose requests never count, neither as busy nor as arrivals: they never stop.
var probeAgents = [][]byte{
	[]byte("kube-probe/"),             // the kubelet's probes
	[]byte("Prometheus/"),             // scrapes
	[]byte("vm_promscrape"),           // VictoriaMetrics' scrapes
	[]byte("ELB-HealthChecker/"),      // AWS
	[]byte("GoogleHC/"),               // Google Cloud
	[]byte("Envoy/HC"),                // Envoy's health checks
	[]byte("HAProxy/healthcheck"),     // HAProxy's, if configured
	[]byte("Azure Traffic Manager"),   // Azure
	[]byte("Load Balancer Agent"),     // Azure's load balancer
	[]byte("Datadog Agent/"),          // its checks
	[]byte("consul-health-check"),     // Consul, if configured
	[]byte("Blackbox Exporter"),       // Prometheus' prober
	[]byte("UptimeRobot/"),            // monitors from outside
	[]byte("Pingdom.com_bot_version"), // the same
}

// IsProbe reports whether a User-Agent is that of a health check or of a scrape, which does not count.
func IsProbe(userAgent []byte) bool {
	for _, prefix := range probeAgents {
		if bytes.HasPrefix(userAgent, prefix) {
			return true
		}
	}
	return false
}
