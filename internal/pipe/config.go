package pipe

import (
	"log/slog"
	"net"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/tlsserver"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// Protocol says what a listener carries.
type Protocol int

const (
	// Auto finds out from the first bytes. The connection to the app is made at
	// once, so that protocols in which the server speaks first work.
	Auto Protocol = iota
	// HTTP connects to the app only when a request has come, so that silent
	// connections do not occupy an app that serves few at a time.
	HTTP
	// TCP looks at nothing: every open connection is busy.
	TCP
)

var protocolNames = [...]string{"auto", "http", "tcp"}

func (p Protocol) String() string { return protocolNames[p] }

// Inbound is one way into the app: where clients come, and where the app is.
type Inbound struct {
	Listen   string // host:port; an empty host is every address, IPv4 and IPv6
	App      string // host:port; empty: where a captured connection wanted to go (SO_ORIGINAL_DST)
	Protocol Protocol

	// Ignore are ports of a captured way in whose connections are served but
	// never count, neither as busy nor as arrivals: probes', scrapes'.
	Ignore []uint16

	// MaxConnections is how many connections it has open at once; 0 for what
	// Limits says, NoLimit for no limit.
	MaxConnections int

	// TLS is how the clients' TLS is ended here; nil: bytes come as they are, and
	// TLS passes through to the app.
	TLS *tlsserver.Options

	// Name is what the listener and its HTTP statistics are called in the admin
	// API; empty for a name made of its address, as Istio does. Contour's
	// shutdown manager, for one, counts those called ingress_http only.
	Name string
}

// Config is what a pipe is made of. Zero values take the defaults.
type Config struct {
	Inbound   []Inbound
	AccessLog *accesslog.Log // nil: none
	Log       *slog.Logger

	// OwnPorts are ports of ours beside the listeners' (status server, admin
	// API): a captured connection is never carried there, where it would come from
	// loopback and be taken for the pod's own.
	OwnPorts []uint16

	// Listen opens a listener, a *net.TCPListener; nil is listen.Open.
	Listen func(network, address string) (net.Listener, error)

	Limits
	Endings

	H2 http2.Limits // of clients of HTTP/2
}

const (
	// lingerTime is how long a connection that we have ended waits for the
	// client's own end before it is closed, so that no reset overtakes the last
	// bytes (RFC 9112, 9.6). Envoy's delayed_close_timeout is 1 s.
	lingerTime = time.Second

	// firstRequestTime is how long a connection that comes at the very end is given
	// for its first request.
	firstRequestTime = time.Second

	// unreadTime is when an idle connection that is to be closed, but has something
	// unread, is looked at again.
	unreadTime = 10 * time.Millisecond
)

func (c *Config) setDefaults() {
	c.Limits.setDefaults()
	c.Endings.setDefaults()
	c.H2.SetDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Listen == nil {
		c.Listen = listen.Open
	}
}
