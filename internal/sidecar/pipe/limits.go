package pipe

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// Limits bound a client's requests and memory. Zero values take the defaults, which are Envoy's where it has any;
// NoLimit removes a limit where that is allowed. docs/limits.md describes the responses.
type Limits struct {
	// A request beyond these is answered, counted in Stats.Refused and not forwarded.
	MaxHead        int           // bytes of a request head, default 60 KiB; 431; 414 if the request line alone is longer
	MaxFields      int           // fields of a request head; default 100; 431
	HeadTimeout    time.Duration // for the rest of a request head; default 30 s; 408
	RequestTimeout time.Duration // for a whole request, its body included; default none, as NoLimit; 408

	DialTimeout      time.Duration // for the connection to the app, while the client waits for it; default 2 min; 503
	HandshakeTimeout time.Duration // for a client's TLS handshake, from its first byte; default 10 s

	// ResponseTimeout is the time from a request's head to the end of its response, with HTTP/1; default NoLimit; 504.
	// Tunnels and HTTP/2 requests have limits of their own in the app and the client (gRPC's deadline).
	ResponseTimeout time.Duration

	// IdleTimeout is how long an HTTP connection without a request in flight may stay open; default 1 h, or NoLimit. If
	// the app's own is shorter, the app ends the connection first.
	IdleTimeout time.Duration

	// MaxConnections is how many connections a listener may have open, unless its Inbound sets it; default NoLimit,
	// as far as Memory allows; 503.
	MaxConnections int

	// Memory is how many bytes the process may use. Of it unfinished requests of all connections may take a part, and
	// more connections than fit into it are not open, unless MaxConnections is set; default unknown: 64 MiB for
	// unfinished requests, and no limit of connections. memory.go has the parts.
	Memory int64

	// KeepAlive is how long a client is silent before the kernel probes it, and the time between probes; after 9
	// without an answer the connection is closed. Default 15 s, as in Go, or NoLimit.
	KeepAlive time.Duration
}

// NoLimit removes a limit.
const NoLimit = -1

// Defaults of Limits.
const (
	DefaultMaxHead          = 60 << 10         // Envoy's max_request_headers_kb
	DefaultMaxFields        = 100              // Envoy's max_headers_count
	DefaultHeadTimeout      = 30 * time.Second // about that of nginx and Apache
	DefaultDialTimeout      = 2 * time.Minute  // as long as the kernel tries: a full queue keeps clients waiting
	DefaultHandshakeTimeout = 10 * time.Second // net/http's; Istio's gateways have 15 s (transport_socket_connect_timeout)
	DefaultIdleTimeout      = time.Hour        // Envoy's idle_timeout
	DefaultKeepAlive        = 15 * time.Second // net.ListenConfig's
)

// Limits without a flag.
const (
	// maxQueued is how many requests of a connection wait for the app at most. The client's next request stays in its
	// socket until the queue is half empty. Few clients pipeline, and those send a few requests ahead. A full queue
	// takes 12 KiB and the request lines.
	maxQueued = 64

	// maxQueuedBytes bounds request lines and access log fields in a queue. One request is queued whatever it holds.
	maxQueuedBytes = 64 << 10

	// maxOverLimit is how many connections of a listener may wait for their 503; more are closed without one.
	maxOverLimit = 64
)

func (l *Limits) setDefaults() {
	l.MaxHead = cmp.Or(l.MaxHead, DefaultMaxHead)
	l.MaxFields = cmp.Or(l.MaxFields, DefaultMaxFields)
	l.HeadTimeout = cmp.Or(l.HeadTimeout, DefaultHeadTimeout)
	l.DialTimeout = cmp.Or(l.DialTimeout, DefaultDialTimeout)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, DefaultHandshakeTimeout)
	l.ResponseTimeout = cmp.Or(l.ResponseTimeout, NoLimit)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, DefaultIdleTimeout)
	l.KeepAlive = cmp.Or(l.KeepAlive, DefaultKeepAlive)
}

// tooLong is the reply to a head, or the beginning of one, that is too long; nil if it is not.
func (l *Limits) tooLong(head []byte) *accesslog.Reply {
	if len(head) <= l.MaxHead {
		return nil
	}
	if eol := bytes.IndexByte(head, '\n'); eol < 0 || eol > l.MaxHead {
		return &replyLineTooLong
	}
	return &replyTooLarge
}

// watchTimeouts ends connections that exceed a timeout, until the pipe ends. Requests do not pay for it: the
// connections are looked at when the first can be due, and at most sweeps times within the shortest timeout.
func (p *Pipe) watchTimeouts() {
	limits := slices.DeleteFunc([]time.Duration{p.cfg.IdleTimeout, p.cfg.ResponseTimeout},
		func(limit time.Duration) bool { return limit <= 0 })
	if len(limits) == 0 {
		return
	}
	shortest := slices.Min(limits)
	for next := shortest; ; {
		select {
		case <-time.After(max(next, shortest/sweeps)):
		case <-p.ctx.Done():
			return
		}
		next = shortest
		for _, c := range p.all() {
			next = min(next, c.endOverdue())
		}
	}
}

// sweeps is the precision of a timeout: a sixteenth.
const sweeps = 16
