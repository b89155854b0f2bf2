package admin

import (
	"net"
	"net/netip"
	"strings"
)

// Plane is the data plane that the API shows and controls. Its methods may be called concurrently and repeatedly.
type Plane interface {
	Listeners() []Listener     // the current inbound listeners
	Connections() []Connection // the clients', the oldest first
	Drain()                    // make every response the last one of its connection
	CloseIdle()                // close connections without requests, from now on
	StopAccepting()            // close the listeners; open connections continue
	Resume()                   // undo Drain and CloseIdle
}

// Listener is one inbound listener, with one app behind it.
type Listener struct {
	Name          string           // and that of its HTTP statistics; if empty, made from its address, as in Istio
	Addresses     []netip.AddrPort // at least one; the first names its statistics
	App           string           // host:port
	HTTP          bool             // it may carry HTTP, and so has HTTP statistics
	Active        uint64           // open connections of clients
	Busy          uint64           // of them, those with a request in flight
	Connections   uint64           // accepted
	Requests      uint64
	Responses     [6]uint64 // by hundreds of the status; [0] is unused
	AppActive     uint64    // open connections to the app
	AppConnected  uint64    // successful ones
	ConnectFailed uint64    // failed ones
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

// statPrefix is the middle of http.….downstream_cx_active. The semicolon is Istio's: it ends a prefix that contains
// dots.
func (l *Listener) statPrefix() string {
	if l.Name != "" {
		return l.Name
	}
	return "inbound_" + l.statAddress() + ";"
}

// cluster is Istio's name for the app behind its own inbound listener.
func (l *Listener) cluster() string {
	_, port, err := net.SplitHostPort(l.App)
	if err != nil {
		port = l.App
	}
	return "inbound|" + port + "||"
}
