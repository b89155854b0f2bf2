package pipe

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/listen"
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

// ParseProtocol reads "auto", "http" or "tcp".
func ParseProtocol(s string) (Protocol, error) {
	for p, name := range protocolNames {
		if s == name {
			return Protocol(p), nil
		}
	}
	return Auto, fmt.Errorf("protocol %q: accepted are %s", s, strings.Join(protocolNames[:], ", "))
}

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
	TLS *TLS

	// Name is what the listener and its HTTP statistics are called in the admin
	// API; empty for a name made of its address, as Istio does. Contour's
	// shutdown manager, for one, counts those called ingress_http only.
	Name string
}

// ParseInbound reads LISTEN=APP and its options, each after a comma:
//
//	protocol=auto|http|tcp
//	name=NAME
//	max-connections=N
//	tls-cert=FILE and tls-key=FILE, with tls-client-ca=FILE, tls-alpn=h2+http/1.1, tls-min-version=1.2|1.3
func ParseInbound(s string) (Inbound, error) {
	fail := func(err error) (Inbound, error) {
		return Inbound{}, fmt.Errorf("inbound %q: %w; accepted is LISTEN=APP[,protocol=auto|http|tcp][,name=NAME][,max-connections=N][,tls-cert=FILE,tls-key=FILE[,tls-client-ca=FILE][,tls-alpn=h2+http/1.1][,tls-min-version=1.2|1.3]], for example 127.0.0.1:15006=127.0.0.1:8080,protocol=http", s, err)
	}
	addresses, options, _ := strings.Cut(s, ",")
	listen, app, found := strings.Cut(addresses, "=")
	if !found {
		return fail(errors.New("there is no ="))
	}
	in := Inbound{Listen: listen, App: app}
	for _, address := range []string{listen, app} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fail(err)
		}
	}
	for option := range strings.SplitSeq(options, ",") {
		if option == "" {
			continue
		}
		name, value, _ := strings.Cut(option, "=")
		var err error
		switch name {
		case "protocol":
			in.Protocol, err = ParseProtocol(value)
		case "name":
			in.Name, err = value, checkName(value)
		case "max-connections":
			in.MaxConnections, err = parseMaxConnections(value)
		default:
			err = in.parseTLS(name, value)
		}
		if err != nil {
			return fail(err)
		}
	}
	if in.TLS != nil {
		if err := in.TLS.check(); err != nil {
			return fail(err)
		}
	}
	return in, nil
}

// parseMaxConnections reads a number; 0 is no limit.
func parseMaxConnections(s string) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("max-connections %q: accepted are 1 and more, and 0 for no limit", s)
	case n == 0:
		return NoLimit, nil
	}
	return n, nil
}

// checkName admits what is one word in a statistic's name, a URL and a log.
func checkName(s string) error {
	word := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if s == "" || len(s) > 60 || strings.ContainsFunc(s, func(r rune) bool { return !word(r) }) {
		return fmt.Errorf("name %q: accepted are 1 to 60 letters, digits, _ and -", s)
	}
	return nil
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
