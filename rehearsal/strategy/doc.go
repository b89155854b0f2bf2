// Package stage sets the scene of a rehearsal: strategies (ways of stopping a
// pod), the pods and gateways that they are played with, and the programs these
// are made of. Everything on it is a real process on real sockets of loopback.
package strategy
