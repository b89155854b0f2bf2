// Package tcp holds what sockets of more than one package need: listeners that take IPv4 and IPv6,
// that can stop without resetting a client, and resume; and dialling loopback by either family.
package tcp
