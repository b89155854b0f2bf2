package pipe

import (
	"cmp"
	"log/slog"
	"net"
	"time"

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
	"github.com/lastcall-dev/lastcall/internal/spread"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// Protocol is the protocol of a listener.
type Protocol int

const (
	// Auto detects the protocol from the first bytes. If the client's have not come with its connection, it connects to
	// the app at once: the server may speak first.
	Auto Protocol = iota
	// HTTP connects to the app at the first request, so that silent connections do not occupy an app that serves few.
	HTTP
	// TCP parses nothing: each open connection is busy.
	TCP
	// Postgres and Redis are followed from the first byte on. Auto detects them, too, except for a client of Redis that
	// begins with an inline command.
	Postgres
	Redis
)

// Protocols has the names of the protocols, as options have them, in the order of the constants.
var Protocols = []string{"auto", "http", "tcp", "postgres", "redis"}

// IsHTTP reports whether requests of HTTP are expected, rather than bytes of another protocol.
func (p Protocol) IsHTTP() bool { return p == Auto || p == HTTP }

func (p Protocol) String() string { return Protocols[p] }

// Inbound is a listener and the app that it forwards to.
type Inbound struct {
	Listen   string // host:port; an empty host is every address, IPv4 and IPv6
	App      string // host:port; empty: the original destination of a captured connection
	Protocol Protocol

	// Ignore are ports, of probes and scrapes, whose captured connections never count, neither as busy nor as arrivals.
	Ignore []uint16

	// MaxConnections limits the open connections; 0 for the value in Limits, NoLimit for no limit.
	MaxConnections int

	// TLS are the options of terminated TLS; nil: it passes through to the app.
	TLS *tlsserver.Options

	// Name is the listener's name in the admin API and in metrics; empty for one made of its address, as Istio does.
	// Contour's shutdown manager counts only listeners called ingress_http.
	Name string
}

// Config is the configuration of a pipe. Zero values take the defaults.
type Config struct {
	Inbound   []Inbound
	AccessLog *accesslog.Log // nil: none
	Log       *slog.Logger

	// OwnPorts are this process's ports other than the listeners' (status server, admin API). A captured connection is
	// never forwarded there: it would come from loopback and be trusted as the pod's own.
	OwnPorts []uint16

	// AppStarts is set for an app that starts together with the pipe: until AppServes, a connection that it refuses waits
	// for this long, as in a restart. 0: it serves already.
	AppStarts time.Duration

	open func(network, address string) (net.Listener, error) // opens a *net.TCPListener; nil: listen.Open. For tests

	Limits
	Endings

	H2 http2.Limits // of clients of HTTP/2
}

const (
	// lingerTime is how long a connection that has sent its FIN waits for the client's, so that no reset overtakes the
	// last bytes (RFC 9112, 9.6). Envoy's delayed_close_timeout is 1 s.
	lingerTime = time.Second

	// firstRequestTime is how long a connection that comes while idle ones are closed has for its first request.
	firstRequestTime = time.Second

	// unreadTime is after how long an idle connection that has something unread is looked at again.
	unreadTime = 10 * time.Millisecond
)

func (c *Config) setDefaults() {
	c.Limits.setDefaults()
	c.WebSocketCode = cmp.Or(c.WebSocketCode, ws.CloseAtLastCall)
	c.H2.SetDefaults()
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.open == nil {
		c.open = listen.Open
	}
}

// Endings are the ways to end conversations without an end of their own. Zero values take the defaults.
type Endings struct {
	// Spread is the time over which the endings are spread, so that clients do not all reconnect at once: at the last
	// call at most three quarters of it, since the rest is for the endings themselves. By default it is as long as the
	// number of connections requires, at least half of the last call, or one second for those that end early.
	Spread time.Duration

	// EarlyTime is the time for endings before the last call. They may take one second even if it is shorter.
	EarlyTime time.Duration

	// WebSocketCode is the status of our close frames: 1001 (default) or 1012.
	WebSocketCode int

	// WebSockets and EventStreams say when they are ended in a drain. EventStreams applies to responses to a GET, and to
	// long polls (longpoll.go): others have an end of their own. EndlessTypes are further media types, in lower case,
	// whose bodies consist of lines and are endless in response to a GET: they are treated as event streams.
	WebSockets, EventStreams LongLived
	EndlessTypes             []string

	// AppFinishes is set if the app ends its opaque connections at its SIGTERM, so that the pipe does not. Otherwise it
	// ends, in a drain, those of TLS without HTTP/2 that are silent between two requests.
	AppFinishes bool
}

// LongLived is when conversations without an end of their own are ended.
type LongLived int

const (
	// Wait leaves them until the last call: they may end by themselves, and the app may know best when.
	Wait LongLived = iota
	// CloseEarly ends them at the next boundary of their protocol when the drain closes idle connections, one after
	// another: their clients reconnect elsewhere while there is time, and the pod can exit before the last call.
	CloseEarly
)

const leastEarlySpread = time.Second

// spread is the part of a last call's window over which n endings are spread.
func (e *Endings) spread(n int, window time.Duration) time.Duration {
	if e.Spread > 0 {
		return min(e.Spread, window*3/4)
	}
	return spread.Over(n, window/2, window)
}

func (e *Endings) earlySpread(n int) time.Duration {
	return cmp.Or(e.Spread, spread.Over(n, leastEarlySpread, e.EarlyTime))
}
