// Package traffic sends requests to a deployment's pods, and records how each one ended.
//
// A client keeps connections alive, as every HTTP client does, and never repeats a request of which a pod may have
// received a byte. net/http's client would repeat some failed requests, and so hide failures.
package traffic
