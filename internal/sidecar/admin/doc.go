// Package admin serves Envoy's admin API for the pipe, a data plane that is not Envoy.
//
// The promise: a tool that drains an Envoy by its admin port drains this data plane, without changes. Requests of such
// tools are accepted as Envoy 1.40 accepts them, and the parts of a response that tools read (status, headers, names of
// statistics, the structure of a body) are as in Envoy. The rest of Envoy's API is missing; docs/admin-api.md lists the
// differences and their reasons.
//
//	handler.go     the list of commands; a request to its command: paths, methods, errors
//	draining.go    /drain_listeners and /healthcheck/fail, and their effects
//	stats.go       /stats: names, values, filters
//	server.go      the listening socket, its connections, its end
//
// There is no authentication: as with Envoy, every client that reaches the port may drain. It belongs on loopback.
package admin
