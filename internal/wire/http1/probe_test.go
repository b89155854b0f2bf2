package http1

import "testing"

func TestIsProbe(t *testing.T) {
	for agent, want := range map[string]bool{
		"kube-probe/1.35":     true,
		"Prometheus/3.5.0":    true,
		"HAProxy/healthcheck": true,
		"Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)":                         true,
		"Mozilla/5.0 (compatible;Cloudflare-Healthchecks/1.0;+https://www.cloudflare.com/; healthcheck)": true,
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)":                       false,
		"curl/8.5.0":                  false,
		"a client of kube-probe/1.35": false,
		"":                            false,
	} {
		if got := IsProbe([]byte(agent)); got != want {
			t.Errorf("%q: %v", agent, got)
		}
	}
}
