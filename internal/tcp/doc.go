// Package tcp has the sockets of the hot path, with TLS and splice, and dials loopback by either family
// of addresses.
package tcp
