// Package accesslog writes access log lines as Istio's Envoys do, and holds Envoy's names for how a request ends:
// response flags, response code details and the bodies of local replies. Tools and dashboards match on them.
package accesslog
