// Package admin answers Envoy's admin API for a data plane that is not Envoy.
//
// The promise: whatever drains an Envoy by its admin port drains this data
// plane, without knowing that it is another. What such tools send is accepted
// as Envoy 1.40 accepts it, and what they look at (status, headers, the names of
// statistics, the shape of a body) is as Envoy writes it. What Envoy has beside
// that is left out; docs/admin-api.md lists what differs, and why.
//
//	handler.go     a request to its command: paths, methods, errors
//	command.go     what commands there are
//	draining.go    /drain_listeners and /healthcheck: what follows from them
//	stat*.go       /stats: names, values, filters
//	server.go      the listening socket, its connections, its end
//
// Nobody is asked who he is: as with Envoy, whoever reaches the port may drain.
// It belongs on loopback.
package admin
