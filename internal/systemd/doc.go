// Package systemd tells the service manager how a service is (sd_notify(3)): that
// it serves, that another process has taken over, that it stops, and, as a
// watchdog, that it still answers.
//
// The protocol is a datagram of NAME=value lines. Where no service manager
// listens, nothing is said.
package systemd
