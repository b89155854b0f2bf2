package admin

import (
	"net"
	"net/netip"
	"strings"
)

// Plane is the data plane that the API tells of and steers. Its methods may be
// called at the same time as each other, and twice.
type Plane interface {
	// Listeners describes the ways in, as they are at this moment.
	Listeners() []Listener

	// Connections lists the clients' connections, the oldest first.
	Connections() []Connection

	// Drain makes every response the last one of its connection.
	Drain()

	// CloseIdle ends the connections on which nothing is due, from now on.
	CloseIdle()

	// StopAccepting closes the listeners. What is open goes on.
	StopAccepting()

	// Resume takes Drain and CloseIdle back.
	Resume()
}

// Listener is one way in, with one app behind it.
type Listener struct {
	// Name is what it and its HTTP statistics are called; empty for names made
	// of its address, as Istio makes them.
	Name string

	// Addresses is where it listens, at least one. The first names its
	// statistics.
	Addresses []netip.AddrPort

	App  string // host:port
	HTTP bool   // it may carry HTTP, and so has HTTP statistics

	Active        uint64 // open connections of clients
	Busy          uint64 // of them, those on which something is due
	Connections   uint64 // accepted
	Requests      uint64
	Responses     [6]uint64 // by hundreds of the status; [0] is unused
	AppActive     uint64    // open connections to the app
	AppConnected  uint64    // that were made
	ConnectFailed uint64    // that could not be made
}

// statAddress is the address in the names of statistics: 0.0.0.0_8080, [__]_8080.
// Envoy replaces colons, which separate a name from its value.
func (l *Listener) statAddress() string {
	return strings.ReplaceAll(l.Addresses[0].String(), ":", "_")
}

func (l *Listener) name() string {
	if l.Name != "" {
		return l.Name
	}
	return l.statAddress()
}

// statPrefix is the middle of http.….downstream_cx_active. The semicolon is
// Istio's: it ends a prefix that has dots in it.
func (l *Listener) statPrefix() string {
	if l.Name != "" {
		return l.Name
	}
	return "inbound_" + l.statAddress() + ";"
}

// cluster is what Istio calls the app behind its own inbound listener.
func (l *Listener) cluster() string {
	_, port, err := net.SplitHostPort(l.App)
	if err != nil {
		port = l.App
	}
	return "inbound|" + port + "||"
}
