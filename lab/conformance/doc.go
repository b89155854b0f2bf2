// Package conformance runs real clients, servers and test suites in front of and behind the pipe:
// h2spec, gRPC's interop suite, h2load, nghttp and curl, and the client libraries of Node, Java,
// Python and Go; and workers of queues in rollouts, with their real brokers; and apps that terminate their TLS
// themselves. Its tests need libraries that the project itself does not, so they are a module of their own:
//
//	make conformance
//
// A test that needs seconds of real clients and servers belongs here: make test runs after each change.
//
// Package transparency compares what clients observe with and without it while nothing drains.
package conformance
