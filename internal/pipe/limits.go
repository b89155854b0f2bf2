package pipe

import (
	"bytes"
	"cmp"
	"time"
)

// Limits bound what a client may ask for and take. Zero values take the defaults,
// which are Envoy's where it has any; NoLimit, where it is accepted, takes a limit
// away. docs/limits.md says what the client sees of each and how it is counted.
type Limits struct {
	// Who goes beyond these is answered, and counted in Stats.Refused; nothing of
	// what he has sent is forwarded.
	MaxHead        int           // bytes of a message head; default 60 KiB; 431
	MaxFields      int           // fields of a request head; default 100; 431
	MaxRequestLine int           // bytes of a request line; default as MaxHead; 414
	HeadTimeout    time.Duration // for a request head that has begun; default 30 s; 408
	RequestTimeout time.Duration // for a whole request, its body included; default none; 408

	DialTimeout      time.Duration // for the connection to the app; default 5 s; 503
	HandshakeTimeout time.Duration // for a client's TLS handshake, from its first byte; default 10 s

	// ResponseTimeout is how long it may take from a request's head to the end of
	// its response, with HTTP/1; default NoLimit; 504. Bytes of a tunnel, and
	// requests of HTTP/2, have limits of their own in the app and the client
	// (gRPC's deadline).
	ResponseTimeout time.Duration

	// IdleTimeout is how long a connection of HTTP may stay open on which nothing
	// is due; default 1 h, or NoLimit. The app's own, if it is shorter, ends the
	// connection first.
	IdleTimeout time.Duration

	// MaxConnections is how many connections a listener has open at once, where
	// its Inbound says nothing else; default NoLimit; 503.
	MaxConnections int

	// KeepAlive is how long nothing has come from a client before the kernel asks
	// whether it is still there, and how long it waits between questions; after 9
	// without an answer the connection is gone. Default 15 s, as Go's, or NoLimit.
	KeepAlive time.Duration
}

// NoLimit takes a limit away.
const NoLimit = -1

const (
	// DefaultMaxHead is Envoy's max_request_headers_kb.
	DefaultMaxHead = 60 << 10
	// DefaultMaxFields is Envoy's max_headers_count.
	DefaultMaxFields = 100
	// DefaultHeadTimeout is what nginx and Apache give a request head, about.
	DefaultHeadTimeout = 30 * time.Second
	// DefaultDialTimeout is for an app on the same machine.
	DefaultDialTimeout = 5 * time.Second
	// DefaultHandshakeTimeout is net/http's habit; Istio's gateways have 15 s
	// (transport_socket_connect_timeout).
	DefaultHandshakeTimeout = 10 * time.Second
	// DefaultIdleTimeout is Envoy's idle_timeout.
	DefaultIdleTimeout = time.Hour
	// DefaultKeepAlive is net.ListenConfig's.
	DefaultKeepAlive = 15 * time.Second

	keepAliveProbes = 9
)

func (l *Limits) setDefaults() {
	l.MaxHead = cmp.Or(l.MaxHead, DefaultMaxHead)
	l.MaxFields = cmp.Or(l.MaxFields, DefaultMaxFields)
	l.MaxRequestLine = min(cmp.Or(l.MaxRequestLine, l.MaxHead), l.MaxHead)
	l.HeadTimeout = cmp.Or(l.HeadTimeout, DefaultHeadTimeout)
	l.DialTimeout = cmp.Or(l.DialTimeout, DefaultDialTimeout)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, DefaultHandshakeTimeout)
	l.ResponseTimeout = cmp.Or(l.ResponseTimeout, NoLimit)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, DefaultIdleTimeout)
}

// tooLong is the answer to a head, or to as much of one as has come, that is too
// long; nil when it is not.
func (l *Limits) tooLong(head []byte) *reply {
	if len(head) <= min(l.MaxHead, l.MaxRequestLine) {
		return nil
	}
	if eol := bytes.IndexByte(head, '\n'); eol < 0 || eol > l.MaxRequestLine {
		return &replyLineTooLong
	}
	if len(head) > l.MaxHead {
		return &replyTooLarge
	}
	return nil
}
