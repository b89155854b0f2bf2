package pipe

import (
	"log/slog"
	"time"
)

// OpaqueKind says why a connection is passed through as bytes. Such a connection is busy
// while it is open, and no limit of HTTP holds for it.
type OpaqueKind int

const (
	OpaqueTCP         OpaqueKind = iota // the configuration says so
	OpaqueTLS                           // TLS that the app ends
	OpaqueConnect                       // the app has accepted a CONNECT
	OpaqueUpgrade                       // the app has accepted an upgrade to something that is not followed
	OpaqueServerFirst                   // the app spoke before any request
	OpaqueUnknown                       // the client's first bytes are neither HTTP nor TLS
	opaqueKinds                         // how many there are

	opaqueCounted OpaqueKind = -1 // it has been counted before
)

var opaqueNames = [opaqueKinds]string{"tcp", "tls", "connect", "upgrade", "server_first", "unknown"}

func (k OpaqueKind) String() string { return opaqueNames[k] }

// opaqueInterval is how often the pipe logs a kind of opaque connection.
const opaqueInterval = 10 * time.Minute

// noteOpaque counts a connection that is passed through as bytes, and logs that there are
// such ones where the configuration did not ask for it.
func (c *conn) noteOpaque(kind OpaqueKind) {
	if kind == opaqueCounted {
		return
	}
	c.in.stats.opaque[kind].Add(1)
	if kind == OpaqueTCP || kind == OpaqueTLS {
		return
	}
	msg := "a connection is passed through as bytes (" + kind.String() + "): it counts as busy while it is open, and no limit of HTTP holds for it"
	c.p.throttle.Log(c.p.cfg.Log, slog.LevelInfo, opaqueInterval, msg, "listener", c.in.Listen, "from", c.client.RemoteAddr().String())
}
